package cli

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// taskFlags are the options that change a task. Empty texts mean not given.
type taskFlags struct {
	workdir, infra, cloud, region, zone       string
	cpus, memory, diskTier, networkTier       string
	imageID, localDisk                        string
	envFile, secretFile, name, gpus, instance string
	priority, gitURL, gitRef, recovery        string
	numNodes, diskSize                        *int
	useSpot                                   *bool
	envs, secrets, ports                      []string

	command string // the command that takes the task, with its cluster: "sky exec dev"
}

// task are the options of every command that takes a task.
func (f flags) task(t *taskFlags) {
	f.text(&t.workdir, "workdir", "", "Folder to copy to ~/sky_workdir, where the task starts.")
	f.text(&t.infra, "infra", "", "Where to run: a cloud, cloud/region, cloud/region/zone, k8s/context, ssh/pool, slurm/cluster or local.")
	f.text(&t.cloud, "cloud", "", "")
	f.text(&t.region, "region", "", "")
	f.text(&t.zone, "zone", "", "")
	f.hide("cloud", "region", "zone")
	f.number(&t.numNodes, "num-nodes", "", "Number of nodes.")
	f.text(&t.cpus, "cpus", "", "vCPUs per node: 4, or 4+ for at least 4.")
	f.text(&t.memory, "memory", "", "Memory per node in GB: 16, or 16+ for at least 16.")
	f.number(&t.diskSize, "disk-size", "", "Size of the system disk in GB.")
	f.choice(&t.diskTier, "disk-tier", "", "Speed of the system disk.", "low", "medium", "high", "ultra", "best", "none")
	f.choice(&t.networkTier, "network-tier", "", "Speed of the network.", "standard", "best")
	f.tri(&t.useSpot, "use-spot", "", "Use spot (preemptible) machines.")
	f.text(&t.imageID, "image-id", "", "Machine image, or docker:IMAGE.")
	f.text(&t.envFile, "env-file", "", "File of KEY=VALUE lines for the task's environment.")
	f.texts(&t.envs, "env", "", "KEY=VALUE for the task's environment; KEY alone takes the value here (may be repeated).")
	f.text(&t.secretFile, "secret-file", "", "File of KEY=VALUE lines that are secrets.")
	f.texts(&t.secrets, "secret", "", "KEY=VALUE that is a secret; KEY alone takes the value here (may be repeated).")
	f.text(&t.localDisk, "local-disk", "", "Local disks of the machine.")
}

// named is the NAME group.
func (f flags) named(t *taskFlags) { f.text(&t.name, "name", "n", "Name of the task.") }

// resources is the RES group.
func (f flags) resources(t *taskFlags) {
	f.text(&t.gpus, "gpus", "", "Accelerators per node: A100, or A100:8.")
	f.text(&t.instance, "instance-type", "t", "Instance type of a cloud.")
	f.texts(&t.ports, "ports", "", "Ports to open: 8080, or 10000-10010 (may be repeated).")
}

// prio is the PRIO group.
func (f flags) prio(t *taskFlags) {
	f.text(&t.priority, "priority", "", "Priority of managed jobs: a number from -1000 to 1000, higher goes first; on Kubernetes the name of a priority class.")
}

// git is the GIT group.
func (f flags) git(t *taskFlags) {
	f.text(&t.gitURL, "git-url", "", "Repository to clone as the work folder. Not available yet.")
	f.text(&t.gitRef, "git-ref", "", "Branch, tag or commit of the repository. Not available yet.")
}

// check refuses combinations; it is told about the deprecated ones.
func (t *taskFlags) check(a *app) error {
	switch {
	case t.gitURL != "" && t.workdir != "":
		return usagef("Cannot specify both --git-url and --workdir")
	case t.gitRef != "" && t.workdir != "":
		return usagef("Cannot specify both --git-ref and --workdir")
	}
	if t.workdir != "" {
		if info, err := os.Stat(expandHome(t.workdir, a.home)); err != nil || !info.IsDir() {
			return usagef("Invalid value for '--workdir': folder '%s' does not exist.", t.workdir)
		}
	}
	if t.cloud+t.region+t.zone != "" {
		if t.infra != "" {
			return usagef("Cannot specify both --infra and --cloud, --region, or --zone.")
		}
		a.t.Warn("The --cloud, --region, and --zone options are deprecated. Use --infra instead.")
	}
	return nil
}

// overrides turns the options into what package task understands.
func (t *taskFlags) overrides(a *app) (task.Overrides, error) {
	var o task.Overrides
	if err := t.check(a); err != nil {
		return o, err
	}
	text := func(to **string, v string) {
		if v != "" {
			*to = &v
		}
	}
	for _, f := range [...]struct {
		to **string
		v  string
	}{
		{&o.Name, t.name}, {&o.Workdir, expandHome(t.workdir, a.home)}, {&o.GitURL, t.gitURL}, {&o.GitRef, t.gitRef}, {&o.Infra, t.infra},
		{&o.Cloud, t.cloud}, {&o.Region, t.region}, {&o.Zone, t.zone}, {&o.GPUs, t.gpus}, {&o.CPUs, t.cpus},
		{&o.Memory, t.memory}, {&o.InstanceType, t.instance}, {&o.ImageID, t.imageID}, {&o.DiskTier, t.diskTier},
		{&o.NetworkTier, t.networkTier}, {&o.LocalDisk, t.localDisk}, {&o.JobRecovery, t.recovery}, {&o.Priority, t.priority},
	} {
		text(f.to, f.v)
	}
	o.NumNodes, o.DiskSize, o.UseSpot, o.Ports = t.numNodes, t.diskSize, t.useSpot, t.ports
	var err error
	if o.Envs, err = a.pairs(t.envs); err != nil {
		return o, err
	}
	if o.Secrets, err = a.pairs(t.secrets); err != nil {
		return o, err
	}
	if o.EnvFile, err = a.envFile(t.envFile); err != nil {
		return o, err
	}
	if o.SecretFile, err = a.envFile(t.secretFile); err != nil {
		return o, err
	}
	over, err := config.Overrides(a.configs, config.Options{Side: config.Client, Home: a.home, Env: a.lookupEnv})
	o.Config = config.TaskPart(over) // over what the task says; the rest goes with the request
	return o, err
}

// pairs reads KEY=VALUE options; KEY alone takes the value of the environment.
func (a *app) pairs(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if k == "" {
			return nil, usagef("'%s' is not of the form KEY=VALUE.", s)
		}
		if !ok {
			if v, ok = a.lookupEnv(k); !ok {
				return nil, usagef("%s is not set in local environment.", k)
			}
		}
		m[k] = v
	}
	return m, nil
}

func (a *app) envFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(expandHome(path, a.home))
	if err != nil {
		return nil, fmt.Errorf("reading the file of variables: %w", err)
	}
	vars, err := task.ParseEnvFile(path, data, a.lookupEnv)
	return maps.Clone(vars), err
}

// checkPriority refuses the name of a class where nothing has classes.
func (t *taskFlags) checkPriority(dag *task.Dag) error {
	if _, err := strconv.Atoi(strings.TrimSpace(t.priority)); t.priority == "" || err == nil || strings.EqualFold(t.priority, "none") {
		return nil
	}
	for _, one := range dag.Tasks {
		for _, r := range one.Resources {
			if r.Cloud == facts.Kubernetes {
				return nil
			}
		}
	}
	return usagef("Invalid value for '--priority': %s is no number. Names are priority classes of Kubernetes; they go with --infra k8s.", t.priority)
}
