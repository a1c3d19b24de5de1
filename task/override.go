package task

import (
	"fmt"
	"slices"
	"strings"
)

// Overrides are what flags say about a task. Nil is "not given". Texts follow
// the grammar of the field of the same name; "none" clears a field.
type Overrides struct {
	Name     *string
	NumNodes *int

	// Workdir replaces the folder. GitURL and GitRef name a repository
	// instead, or change the one that the task names.
	Workdir, GitURL, GitRef *string

	// Infra replaces cloud, region and zone together.
	Infra               *string
	Cloud, Region, Zone *string

	GPUs, CPUs, Memory, InstanceType, ImageID *string
	DiskTier, NetworkTier, LocalDisk          *string
	DiskSize                                  *int
	UseSpot                                   *bool
	Ports                                     []string
	JobRecovery                               *string
	Priority                                  *string // a number, or the name of a class
	Autostop                                  *Autostop

	// Config is laid over the task's config; what a task cannot set is left out.
	Config map[string]any

	// EnvFile and SecretFile are the contents of files; Envs and Secrets come
	// from flags and win. What the task declares as a secret stays one, also
	// when it comes from EnvFile.
	EnvFile, Envs       map[string]string
	SecretFile, Secrets map[string]string
}

// Override lays flags over the Dag, on every candidate of a single task. With
// several tasks only variables, workdir and the Dag's name change, and the
// rest is named in a warning. It ends with the check that every declared
// variable has a value, so call it, even with no flags, before using a Dag.
func (d *Dag) Override(o Overrides) (warnings []string, err error) {
	if o.Workdir != nil && (o.GitURL != nil || o.GitRef != nil) {
		return nil, flagError("--workdir", "a folder and a repository (--git-url, --git-ref) exclude each other; give one of them")
	}
	if o.Infra != nil && (o.Cloud != nil || o.Region != nil || o.Zone != nil) {
		return nil, flagError("--infra", "--infra already says the place; leave out --cloud, --region and --zone")
	}
	if o.NumNodes != nil && *o.NumNodes < 1 {
		return nil, flagError("--num-nodes", "should be at least 1, not %d", *o.NumNodes)
	}
	if o.Name != nil {
		if err := ValidTaskName(*o.Name); err != nil {
			return nil, flagError("--name", "%s", err)
		}
	}
	for _, t := range d.Tasks {
		if err := t.setVariables(o); err != nil {
			return nil, err
		}
		w, err := t.setWorkdir(o)
		if err != nil {
			return nil, err
		}
		warnings = append(append(warnings, w...), t.secretWarnings()...)
	}
	edits, err := o.edits()
	if err != nil {
		return nil, err
	}
	if len(d.Tasks) == 1 && d.Execution != Parallel {
		if err := d.overrideTask(o, edits); err != nil {
			return nil, err
		}
	} else {
		if o.Name != nil {
			d.Name = *o.Name
		}
		if names := o.ignoredForMany(edits); len(names) > 0 {
			what := "the file has several tasks"
			if d.Execution == Parallel {
				what = "the file is a job group"
			}
			warnings = append(warnings, fmt.Sprintf("%s, so %s had no effect; write it into the file", what, strings.Join(names, ", ")))
		}
	}
	return warnings, d.ready()
}

func flagError(flag, format string, args ...any) *Error {
	return &Error{Field: flag, Message: fmt.Sprintf(format, args...)}
}

func (d *Dag) overrideTask(o Overrides, edits []edit) error {
	t := d.Tasks[0]
	if len(edits) > 0 {
		if len(t.Resources) == 0 {
			t.Resources = []Resources{{}}
		}
		t.Resources = slices.Clone(t.Resources)
		var out []Resources
		for _, r := range t.Resources {
			r = r.clone()
			for _, e := range edits {
				e.do(&r)
			}
			if !slices.ContainsFunc(out, func(x Resources) bool { return sameTree(&x, &r) }) {
				out = append(out, r)
			}
		}
		t.Resources = out
		if len(out) == 1 {
			t.Preference = AnyOf
		}
	}
	if o.NumNodes != nil {
		t.NumNodes = *o.NumNodes
	}
	if o.Name != nil {
		t.Name, d.Name = *o.Name, *o.Name
	}
	return t.setConfig(o.Config)
}

func (o Overrides) ignoredForMany(edits []edit) []string {
	var names []string
	for _, e := range edits {
		names = append(names, e.flag)
	}
	if o.NumNodes != nil {
		names = append(names, "--num-nodes")
	}
	if o.Config != nil {
		names = append(names, "--config")
	}
	return names
}

func (t *Task) setWorkdir(o Overrides) (warnings []string, err error) {
	if t.Git == nil {
		switch {
		case o.Workdir != nil:
			t.Workdir = *o.Workdir
		case o.GitURL != nil:
			t.Workdir, t.Git = "", &GitWorkdir{}
		case o.GitRef != nil:
			return nil, flagError("--git-ref", "names a branch, tag or commit of a repository; give the repository with --git-url")
		}
	} else {
		git := *t.Git
		t.Git = &git
		if o.Workdir != nil {
			warnings = append(warnings, fmt.Sprintf("--workdir had no effect: the workdir of the task is the repository %s", t.Git.URL))
		}
	}
	if o.GitURL != nil {
		url, ok := ParseGitURL(*o.GitURL)
		if !ok {
			return nil, flagError("--git-url", "should be a repository such as https://host/org/project or git@host:org/project, not %q", *o.GitURL)
		}
		t.Git.URL = url
	}
	if o.GitRef != nil {
		t.Git.Ref = *o.GitRef
	}
	return warnings, nil
}

// ForExec drops what cannot change on a running cluster, and names the flags.
func (o Overrides) ForExec() (Overrides, []string) {
	var ignored []string
	drop := func(flag string, p **string) {
		if *p != nil {
			ignored, *p = append(ignored, flag), nil
		}
	}
	drop("--cpus", &o.CPUs)
	drop("--memory", &o.Memory)
	drop("--disk-tier", &o.DiskTier)
	drop("--local-disk", &o.LocalDisk)
	if o.DiskSize != nil {
		ignored, o.DiskSize = append(ignored, "--disk-size"), nil
	}
	if o.Ports != nil {
		ignored, o.Ports = append(ignored, "--ports"), nil
	}
	return o, ignored
}
