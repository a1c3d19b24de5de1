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
