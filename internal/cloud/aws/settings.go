package aws

import (
	"cmp"
	"path"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Settings are what a user says about AWS in the configuration.
type Settings struct {
	Profile        string   // of the shared credentials file; "": the default one
	VPC            string   // by its tag Name; "": the region's default
	Subnets        []string // by their tag Name; none: all of the VPC
	SecurityGroups []GroupRule
	Reservations   []string // ids of capacity reservations and blocks to use
	Prioritize     bool     // reserved capacity is used before anything else
	UseSSM         bool     // machines are reached through Systems Manager
	InternalIPs    bool     // machines get no public address and are reached at their private one
	ProxyCommand   vm.Regional
	User           string // to log in as; "": ubuntu
	EncryptDisks   bool
	Labels         map[string]string
	Profiles       []GroupRule // instance profiles ("remote_identity"); none: sky's own
	NoIdentity     bool        // machines get no role at all
	FirstRun       []any       // commands for cloud-init to run on new machines: lines for a shell, or lists of arguments
	WithoutAgents  bool        // instances are records of an emulator: nothing runs on them
}

// GroupRule names a thing for the clusters whose name fits a pattern such as
// "train-*"; the first that fits counts.
type GroupRule struct{ Pattern, Use string }

// ReadSettings reads the section "aws" of the configuration, which was checked
// when it was loaded.
func ReadSettings(section map[string]any) Settings {
	text := func(key string) string { v, _ := section[key].(string); return v }
	yes := func(key string) bool { v, _ := section[key].(bool); return v }
	s := Settings{
		Profile: text("profile"), VPC: text("vpc_name"), Subnets: vm.Texts(section["subnet_names"]), User: text("ssh_user"),
		InternalIPs: yes("use_internal_ips"), EncryptDisks: yes("disk_encrypted"), WithoutAgents: yes("without_agents"),
		Reservations: vm.Texts(section["specific_reservations"]), Prioritize: yes("prioritize_reservations"), UseSSM: yes("use_ssm"),
		SecurityGroups: rules(section["security_group_name"]), ProxyCommand: vm.ReadRegional(section["ssh_proxy_command"]), Labels: vm.Labels(section["labels"]),
	}
	s.FirstRun, _ = section["post_provision_runcmd"].([]any)
	if names := vm.Texts(section["vpc_names"]); s.VPC == "" && len(names) > 0 {
		s.VPC = names[0]
	}
	switch v := text("remote_identity"); v {
	case "", "LOCAL_CREDENTIALS", "SERVICE_ACCOUNT":
		s.Profiles = rules(nil)
	case "NO_UPLOAD":
		s.NoIdentity = true
	default:
		s.Profiles = rules(v)
	}
	if list, ok := section["remote_identity"].([]any); ok {
		s.Profiles = rules(list)
	}
	return s
}

// rules reads one name for all clusters, or a list of {pattern: name}.
func rules(v any) []GroupRule {
	switch v := v.(type) {
	case string:
		return []GroupRule{{"*", v}}
	case []any:
		var out []GroupRule
		for _, e := range v {
			m, _ := e.(map[string]any)
			for pattern, name := range m {
				if t, ok := name.(string); ok {
					out = append(out, GroupRule{pattern, t})
				}
			}
		}
		return out
	}
	return nil
}

// settings are those of a launch: its own, else the installation's.
func (p *Provider) settings(spec cloud.LaunchSpec) Settings {
	if spec.Settings != nil {
		return ReadSettings(spec.Settings)
	}
	return p.o.Settings()
}

const defaultUser = "ubuntu"

func (s *Settings) user() string { return cmp.Or(s.User, defaultUser) }

// named is what the rules say about a cluster; "" if none fits.
func named(rules []GroupRule, cluster string) string {
	for _, r := range rules {
		if ok, err := path.Match(r.Pattern, cluster); ok && err == nil {
			return r.Use
		}
	}
	return ""
}
