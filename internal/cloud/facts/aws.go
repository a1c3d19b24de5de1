package facts

import (
	"math"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

var aws = Cloud{
	Name: "aws", Display: "AWS", Regions: "price list, with zones", Wrong: []string{"amazon"},
	Prices: &Prices{
		Hosted: true, Refresh: 7 * time.Hour, Beside: []string{Images, InstanceQuotas}, ZoneIDs: true, RegionClass: usFirst,
		Columns: []Column{Arch, LocalDiskType, NVMe, LocalDiskSize, LocalDiskCount},
		Family:  lazyregexp.New(`^(m6i|m6id|m7i|r6i|r6id|r7i|c6i|c6id|c7i)\.`),
		Arm:     lazyregexp.New(`^(a1|[a-z]+[0-9]+g[a-z0-9]*)\.`),
		Special: lazyregexp.New(`^(mac[^.]*|t1|m1|m2|c1)\.`), // dedicated hosts; no image for them
	},
	Egress:  []Tier{{1, 0}, {10240, 0.09}, {51200, 0.085}, {153600, 0.07}, {math.Inf(1), 0.05}},
	Schemes: []string{"s3"},
	Notices: EC2Metadata,
	Label: func(key, value string) string {
		switch {
		case strings.HasPrefix(key, "aws:"):
			return "keys that begin with aws: belong to the cloud"
		case !awsLabelKey.MatchString(key):
			return "a key has up to 127 characters and no spaces"
		case !awsLabelValue.MatchString(value):
			return "a value has up to 255 characters and no spaces"
		}
		return ""
	},
	Settings: func() *schema.Spec {
		return schema.Section("Amazon Web Services.",
			prioritize(), reservations(),
			schema.New("disk_encrypted", schema.YesNo("Encrypt disks.", false)),
			schema.New("ssh_user", schema.Text("User to log in as.").Defaults("ubuntu").
				Matching(schema.Regexp(`^[A-Za-z_][A-Za-z0-9_.@-]{0,63}$`, "a user's name: letters, digits and . _ @ -"))),
			schema.New("security_group_name", schema.Text("Security group of machines; absent: one that sky makes.").PerCluster()),
			schema.New("vpc_name", schema.Text("VPC to launch in.").Or(schema.NullKind)),
			schema.New("vpc_names", names("VPCs to launch in.")),
			schema.New("subnet_names", names("Subnets to launch in.")),
			schema.New("use_ssm", schema.YesNo("Reach machines through Systems Manager.", false).ByAdmins(schema.Executes)),
			schema.New("without_agents", schema.YesNo("For tests against an emulator of EC2 (AWS_ENDPOINT_URL) whose instances are records: clusters are up when their instances run, and nothing can run on them. Refused on AWS itself.", false).ByAdmins(schema.Confines)),
			schema.New("enforce_tags", schema.List("What must have tags.", schema.Choice("A kind of resource.", "instance", "volume")).NoEffect("everything that sky makes on AWS has tags from the start")),
			runCommands(), capabilities(), labels(), internalIPs(), proxyCommand(), identityOrRole(),
		).Without(`write "labels"`, "instance_tags")
	},
	Workspace: func() *schema.Spec {
		return schema.Section("Amazon Web Services in this workspace.",
			schema.New("profile", schema.Text("Profile of the AWS configuration to use.")), capabilities(), identityOrRole())
	},
}

var (
	awsLabelKey   = lazyregexp.New(`^\S{1,127}$`)
	awsLabelValue = lazyregexp.New(`^\S{0,255}$`)
)
