package aws

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// The way in through Systems Manager, where no port of the machines is open:
// the agent of Systems Manager in the image connects out, and the AWS CLI with
// its plugin connects to that.

// ssmPolicy is what the machines' role needs for it.
const ssmPolicy = "AmazonSSMManagedInstanceCore"

// throughSSM reports that the machines of a region are reached in this way.
func (s *Settings) throughSSM(region string) bool { return s.UseSSM && s.ProxyCommand.In(region) == "" }

// ssmCommand is the ProxyCommand to an instance.
func ssmCommand(profile, region, id string) string {
	if profile != "" {
		profile = " --profile '" + strings.NewReplacer("'", `'\''`, "%", "%%").Replace(profile) + "'"
	}
	return fmt.Sprintf("aws ssm start-session --region %s%s --target %s --document-name AWS-StartSSHSession --parameters portNumber=%%p", region, profile, id)
}

// ssmTools refuses to rent machines that could not be reached.
func ssmTools(region string) error {
	for _, tool := range []struct{ name, get string }{
		{"aws", "the AWS CLI: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"},
		{"session-manager-plugin", "the Session Manager plugin: https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"},
	} {
		if _, err := exec.LookPath(tool.name); err != nil {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: errors.New(
				"aws.use_ssm is set in the configuration, and the machine that the API server runs on has no " + tool.name + "; install " + tool.get)}
		}
	}
	return nil
}
