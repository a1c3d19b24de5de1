package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// phase is a part of a job that runs as a gang of its own.
type phase string

const (
	phaseSetup phase = "setup"
	phaseRun   phase = "run"
)

// taskTime is how a moment looks in task ids.
func taskTime(t time.Time) string {
	return strings.ReplaceAll(t.UTC().Format("2006-01-02-15-04-05.000000"), ".", "-")
}

// variables are what a rank finds in its environment besides the agent's own.
// Users may replace what says which nodes there are, but not which one this is.
func variables(c *agentapi.ClusterSpec, job *agentapi.Job, spec *agentapi.JobSpec, ips []string, rank int, gpus []int, p phase) map[string]string {
	nodeIPs := strings.Join(ips, "\n")
	devices := gpuCount(spec)
	env := map[string]string{
		"SKYPILOT_TASK_ID":   job.TaskID,
		"SKYPILOT_NUM_NODES": strconv.Itoa(len(ips)),
		"SKY_CLUSTER_NAME":   c.NameOnCloud,
	}
	if p == phaseRun {
		env["SKYPILOT_NODE_IPS"] = nodeIPs
	}
	maps.Copy(env, sliceVariables(c, ips, rank))
	maps.Copy(env, spec.Envs)
	maps.Copy(env, spec.Secrets)
	info, _ := json.Marshal(struct {
		Name   string `json:"cluster_name"`
		Cloud  string `json:"cloud"`
		Region string `json:"region"`
		Zone   string `json:"zone"`
	}{c.Name, c.Cloud, c.Region, c.Zone})
	env["SKYPILOT_CLUSTER_INFO"] = string(info)
	env["SKYPILOT_USER"] = cmp.Or(spec.User, c.User)
	env["SKYPILOT_INTERNAL_JOB_ID"] = strconv.Itoa(job.ID)
	switch p {
	case phaseRun:
		env["SKYPILOT_NUM_GPUS_PER_NODE"] = strconv.Itoa(devices)
		env["SKYPILOT_NODE_RANK"] = strconv.Itoa(rank)
	case phaseSetup:
		env["SKYPILOT_SETUP_NODE_IPS"] = nodeIPs
		env["SKYPILOT_SETUP_NODE_RANK"] = strconv.Itoa(rank)
		env["SKYPILOT_SETUP_NUM_GPUS_PER_NODE"] = strconv.Itoa(devices)
		env["SKYPILOT_NUM_NODES"] = strconv.Itoa(len(ips))
	}
	if len(gpus) > 0 && devices > 0 {
		ids := make([]string, len(gpus))
		for i, g := range gpus {
			ids[i] = strconv.Itoa(g)
		}
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(ids, ",")
	} else if _, set := env["CUDA_VISIBLE_DEVICES"]; !set && p == phaseRun && hasGPUs(c) {
		env["CUDA_VISIBLE_DEVICES"] = "" // others may have reserved them all
	}
	return env
}

// sliceVariables are what libtpu, and with it JAX and PyTorch/XLA, read to find the other
// machines of a TPU slice: of the slice that the rank is on, as each slice of a job is a
// machine of its own to them. What says how slices work together (MEGASCALE_…) is the task's.
//
// https://cloud.google.com/kubernetes-engine/docs/how-to/tpus and the TPU driver of PyTorch/XLA
// (torch_xla/_internal/tpu.py) name them.
func sliceVariables(c *agentapi.ClusterSpec, ips []string, rank int) map[string]string {
	first := rank - rank%max(c.Hosts, 1)
	if c.Hosts < 2 || first+c.Hosts > len(ips) {
		return nil
	}
	env := map[string]string{"TPU_WORKER_ID": strconv.Itoa(rank - first), "TPU_WORKER_HOSTNAMES": strings.Join(ips[first:first+c.Hosts], ",")}
	for i, n := range c.Nodes {
		if n.IP == ips[first] && i%c.Hosts == 0 {
			env["TPU_NAME"] = n.ID
		}
	}
	for name := range c.Capacity.Accelerators {
		if kind, ok := strings.CutPrefix(strings.ToLower(name), "tpu-"); ok {
			env["TPU_ACCELERATOR_TYPE"] = kind
		}
	}
	return env
}

// gpuCount is how many devices a rank sees: a part counts as one, TPUs as none.
func gpuCount(spec *agentapi.JobSpec) int {
	for name, n := range spec.Accelerators {
		if n > 0 && !isTPU(name) {
			return int((milli(n) + 999) / 1000)
		}
	}
	return 0
}

func hasGPUs(c *agentapi.ClusterSpec) bool {
	for name, n := range c.Capacity.Accelerators {
		if n > 0 && !isTPU(name) {
			return true
		}
	}
	return false
}

func isTPU(name string) bool { return strings.HasPrefix(strings.ToLower(name), "tpu") }
