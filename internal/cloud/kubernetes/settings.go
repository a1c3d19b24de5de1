package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// settings are the configuration of a context as this package uses it.
type settings struct {
	Namespace      string         `json:"namespace"`
	PodConfig      map[string]any `json:"pod_config"`
	Metadata       map[string]any `json:"custom_metadata"`
	MountBroker    bool           `json:"mount_broker"`
	Timeout        *int           `json:"provision_timeout"` // seconds; negative: for ever
	Autoscaler     string         `json:"autoscaler"`
	Ports          string         `json:"ports"`
	RemoteIdentity string         `json:"remote_identity"`
	Limits         any            `json:"set_pod_resource_limits"` // bool or multiple
	AllowedNodes   allowedNodes   `json:"allowed_nodes"`
	Pricing        pricing        `json:"pricing"`
	EnableDocker   any            `json:"enable_docker"`
	Kueue          struct {
		Queue   string `json:"local_queue_name"`
		Timeout *int   `json:"admission_timeout"` // seconds; negative: for ever
	} `json:"kueue"`
	DWS struct {
		Enabled bool `json:"enabled"`
		MaxRun  any  `json:"max_run_duration"`
	} `json:"dws"`
}

// allowedNodes are the nodes that may be used: any that matches one of these.
type allowedNodes struct {
	Labels map[string]string `json:"label_selector"`
	Names  []string          `json:"names"`
	IPs    []string          `json:"ips"`
}

func (a allowedNodes) any() bool { return len(a.Labels)+len(a.Names)+len(a.IPs) > 0 }

// pricing is what the user says that a context costs, in $ per hour.
type pricing struct {
	CPU          float64            `json:"cpu"`
	Memory       float64            `json:"memory"`
	Accelerators map[string]float64 `json:"accelerators"`
}

// of is the price of a pod: accelerators alone where it has some.
func (p pricing) of(s podSize) float64 {
	if s.accelerator == "" {
		return p.CPU*s.cpus + p.Memory*s.memoryGB
	}
	for name, each := range p.Accelerators {
		if strings.EqualFold(name, s.accelerator) {
			return each * s.accelerators
		}
	}
	return 0
}

// newSettings reads a section of the configuration, which was checked when it
// was loaded.
func newSettings(section map[string]any) (settings, error) {
	var s settings
	b, err := json.Marshal(section)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("the kubernetes section of the configuration: %w", err)
	}
	return s, nil
}

// limits is how many times what it requests a pod may use; 0: no limit.
func (s settings) limits() float64 {
	switch v := s.Limits.(type) {
	case bool:
		if v {
			return 1
		}
	case float64:
		return v
	}
	return 0
}

// patience is how long pods may wait, each 0: for ever.
type patience struct {
	queue time.Duration // to be admitted by their queue
	nodes time.Duration // then, to be scheduled
}

// patience of pods, where volumes may have to be made for them or not.
func (s settings) patience(nodes int, sharedVolumes bool) patience {
	p := patience{queue: 24 * time.Hour, nodes: s.scheduling(nodes, sharedVolumes)}
	if s.Kueue.Timeout != nil {
		p.queue = seconds(*s.Kueue.Timeout)
	}
	return p
}

// seconds reads a limit as it is set: negative is for ever, which is 0 here.
func seconds(n int) time.Duration {
	if n < 0 {
		return 0
	}
	return time.Duration(max(n, 1)) * time.Second
}

func (s settings) scheduling(nodes int, sharedVolumes bool) time.Duration {
	if s.Timeout != nil {
		return seconds(*s.Timeout)
	}
	extra := float64(max(nodes-1, 0))
	seconds := min(10+0.2*extra, 60)
	switch {
	case s.DWS.Enabled:
		seconds = min(1200+10*extra, 2400)
	case sharedVolumes:
		seconds = min(180+0.2*extra, 240)
	}
	if s.Autoscaler != "" {
		seconds = max(seconds, 60)
	}
	return time.Duration(seconds * float64(time.Second))
}

// growing is how long a cluster autoscaler that has begun to add nodes is
// waited for, at least.
func (s settings) growing() time.Duration {
	if s.Autoscaler == "" || s.Timeout != nil && *s.Timeout < 0 {
		return 0
	}
	return 900 * time.Second
}

// growth are the events about a pod by which an autoscaler says that it adds a
// node for it.
func (s settings) growth() []string {
	const cluster, karpenter = "TriggeredScaleUp", "Nominated"
	switch s.Autoscaler {
	case "karpenter":
		return []string{karpenter}
	case "generic":
		return []string{cluster, karpenter}
	}
	return []string{cluster}
}

// The default account of a pod, which gives its processes no rights.
const (
	identityDefault = "SERVICE_ACCOUNT"
	identityNone    = "NO_UPLOAD"
	identityLocal   = "LOCAL_CREDENTIALS"
)

// account is the service account that the user named, or "".
func (s settings) account() string {
	switch strings.ToUpper(s.RemoteIdentity) {
	case "", identityDefault, identityNone, identityLocal:
		return ""
	}
	return s.RemoteIdentity
}
