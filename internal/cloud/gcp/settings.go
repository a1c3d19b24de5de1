package gcp

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Settings are what a user says about Google Cloud in the configuration.
type Settings struct {
	Project      string // of the workspace; "": the one of the environment or the credentials
	VPC          string // "NAME" or "PROJECT/NAME"; "": one that lets the machines in
	Subnets      []string
	InternalIPs  bool // machines get no public address
	ExternalIPs  bool // they get one whatever InternalIPs says, and are reached at the private one
	ProxyCommand vm.Regional
	GVNIC        bool
	GPUDirect    bool
	Placement    string // "compact" or nothing
	Reservations []string
	Prioritize   bool // plans count the reservations that are open to all machines
	Labels       map[string]string
	NoIdentity   bool // machines get no service account
	RunSeconds   int  // how long machines with GPUs live, which a managed instance group makes; 0: none does
	WaitSeconds  int  // how long it may take to get them
}

// ReadSettings reads the section "gcp" of the configuration, which was checked when it
// was loaded.
func ReadSettings(section map[string]any) Settings {
	text := func(key string) string { v, _ := section[key].(string); return v }
	yes := func(key string) bool { v, _ := section[key].(bool); return v }
	s := Settings{
		Project: text("project_id"), VPC: text("vpc_name"), Subnets: vm.Texts(section["subnet_names"]), InternalIPs: yes("use_internal_ips"),
		ExternalIPs: yes("force_enable_external_ips"), GVNIC: yes("enable_gvnic"), GPUDirect: yes("enable_gpu_direct"), Placement: text("placement_policy"),
		Reservations: vm.Texts(section["specific_reservations"]), NoIdentity: strings.EqualFold(text("remote_identity"), "NO_UPLOAD"),
		Prioritize: yes("prioritize_reservations"), ProxyCommand: vm.ReadRegional(section["ssh_proxy_command"]), Labels: vm.Labels(section["labels"]),
	}
	if group, ok := section["managed_instance_group"].(map[string]any); ok {
		s.RunSeconds, s.WaitSeconds = whole(group["run_duration"], -1), whole(group["provision_timeout"], 900)
	}
	return s
}

// whole reads a whole number.
func whole(v any, missing int) int {
	switch v := v.(type) {
	case int:
		return v
	case int64:
		return int(v)
	case float64:
		return int(v)
	}
	return missing
}

// settings are those of a launch: its own, else the installation's.
func (p *Provider) settings(spec cloud.LaunchSpec) Settings {
	if spec.Settings != nil {
		return ReadSettings(spec.Settings)
	}
	return p.o.Settings()
}

// sameProject refuses a launch whose settings name another project than the
// installation's: it would be paid by the wrong account.
func (p *Provider) sameProject(spec cloud.LaunchSpec) error {
	if spec.Settings == nil {
		return nil
	}
	have, want := p.o.Settings().Project, ReadSettings(spec.Settings).Project
	if have == want || want == "" {
		return nil
	}
	return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("gcp.project_id is %q here and %q for the installation, and one server uses one project at a time; "+
		"run a server of its own for the other project", want, have)}
}

// external reports whether machines get public addresses.
func (s Settings) external() bool { return !s.InternalIPs || s.ExternalIPs }
