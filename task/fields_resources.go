package task

import (
	"slices"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// resourcesSchema is a map, or (ours) a list of candidates in order.
func resourcesSchema() *schema.Spec {
	candidate := object(candidateFields(false)...)
	candidate.Gone = goneResources()
	candidate.Gone["any_of"] = "candidates cannot hold candidates"
	candidate.Gone["ordered"] = candidate.Gone["any_of"]
	s := object(append(candidateFields(true),
		field{name: "any_of", is: list(candidate), doc: "Alternatives: the cheapest that can be had is taken. Each is laid over the other fields of resources.", example: "[{infra: aws}, {infra: gcp}]"},
		field{name: "ordered", is: list(candidate), doc: "Alternatives in order of preference. Each is laid over the other fields of resources.", example: "[{accelerators: H100}, {accelerators: A100}]"},
	)...)
	s.Gone = goneResources()
	out := s.With(list(candidate))
	return out.Or(yaml11.Null)
}

func cloudSchema() *schema.Spec {
	s := choiceAnyCase(Clouds...)
	s.Aliases = map[string]string{}
	for _, c := range facts.All() {
		for _, other := range append(slices.Clone(c.Aliases), c.Wrong...) {
			s.Aliases[other] = c.Name
		}
	}
	return s
}

func goneResources() map[string]string {
	return map[string]string{
		"spot_recovery": `write "job_recovery"`,
		"candidates":    `write "any_of" (the cheapest) or "ordered" (the first that can be had); only sky bench launch takes candidates`,
		"hooks":         "life-cycle hooks are listed under config.hooks, at the top level",
		"docker_image":  `write "image_id: docker:IMAGE"`,
		"docker":        `write "image_id: docker:IMAGE"`,
		"num_nodes":     "it goes to the top level of the task",
		"nodes":         `write "num_nodes" at the top level of the task`,
		"spot":          `write "use_spot"`,
		"gpu":           `write "accelerators" (or "gpus")`,
		"cpu":           `write "cpus"`,
		"mem":           `write "memory"`,
		"disk":          `write "disk_size"`,
		"image":         `write "image_id"`,
		"port":          `write "ports"`,
		"strategy":      `write "job_recovery"`,
		"envs":          "it goes to the top level of the task",
	}
}

// candidateFields are the fields of resources; base has the forms that only
// the outer map takes.
func candidateFields(base bool) []field {
	accelerators := text()
	accelerators = checked(accelerators, checkAccelerator, `[^:]+(:[^:]+){0,2}`)
	count := checkedNumber(number(), checkPositive).Or(yaml11.Null)
	if base {
		accelerators = accelerators.With(mapOf(count)).With(list(text().With(single(count))))
	} else {
		accelerators = accelerators.With(single(count))
	}
	places := text().With(set(text()))
	return []field{
		{name: "infra", is: checked(text(), checkInfra, `[^/ ]+(/[^/ ]+)*`),
			doc: "Where to run: cloud, cloud/region or cloud/region/zone; * for any.", def: "anywhere", example: "aws/us-east-1"},
		{name: "cloud", is: cloudSchema(), doc: "The cloud; infra says the same in one word.", def: "any", example: "aws"},
		{name: "region", is: places, doc: "Region, or a list of regions to choose from.", def: "any", example: "us-east-1"},
		{name: "zone", is: places, doc: "Zone, or a list of zones to choose from.", def: "any", example: "us-east-1a"},
		{name: "instance_type", is: text(), doc: "The cloud's name for a kind of machine.", example: "m6i.2xlarge"},
		{name: "cpus", is: checked(text().Or(yaml11.Number), errOnly(ParseCPUs), `[0-9.]+\+?`),
			doc: "vCPUs per node: exactly 8, or 8+ for at least 8.", def: "8+ when nothing else is asked", example: "8+"},
		{name: "memory", is: checked(text().Or(yaml11.Number), errOnly(ParseMemory), `[0-9.]+([kKmMgGtTpP][bBiI])?[+x]?`),
			doc: "Memory per node in GB: exactly 32, 32+ for at least 32, with a unit, or 4x for 4 GB per vCPU.", def: "4x when nothing else is asked", example: "32+"},
		{name: "accelerators", is: accelerators.Or(yaml11.Null), doc: "GPUs or TPUs per node: NAME or NAME:COUNT; a map is a choice, a list an order of preference; 80GB+ asks by memory.", example: "A100:8"},
		{name: "gpus", is: accelerators, doc: "The same as accelerators.", example: "H100:1"},
		{name: "accelerator_args", is: object(
			field{name: "runtime_version", is: text(), doc: "Software version of a TPU.", example: "tpu-vm-base"},
			field{name: "tpu_name", is: text(), doc: "Name for the TPU.", example: "my-tpu"},
			field{name: "tpu_vm", is: boolean(), doc: "Whether to log into the TPU's host itself.", def: "true", example: "true"},
			field{name: "gcp_queued_resource", is: boolean(), doc: "Whether to wait in Google's queue for the TPU.", def: "false", example: "true"},
		), doc: "Further settings of a TPU.", example: "{runtime_version: tpu-vm-base}"},
		{name: "use_spot", is: boolean(), doc: "Whether to take spot machines: cheaper, but they may be taken away.", def: "false", example: "true"},
		{name: "job_recovery", is: text().Or(yaml11.Null).With(openObject(
			field{name: "strategy", is: text().Or(yaml11.Null), doc: "EAGER_NEXT_REGION (move at once) or FAILOVER (the same place first).", def: "EAGER_NEXT_REGION", example: "FAILOVER"},
			field{name: "max_restarts_on_errors", is: integer().AtLeast(0), doc: "How often to start again when the job itself fails.", def: "0", example: "3"},
			field{name: "recover_on_exit_codes", is: integer().AtLeast(0).AtMost(255).With(&schema.Spec{Kinds: yaml11.List, Items: integer().AtLeast(0).AtMost(255), Unique: true}), doc: "Exit codes that always start the job again.", example: "[33, 34]"},
			field{name: "recovery", is: choice("cluster", "node"), doc: "What is replaced when one node of several is lost: the whole cluster, or the node alone; the job starts again on all nodes either way.", def: "cluster", example: "node"},
		)), doc: "How a managed job comes back after its machines are gone.", def: "EAGER_NEXT_REGION", example: "FAILOVER"},
		{name: "disk_size", is: checked(text().Or(yaml11.Int), func(s string) error { _, err := ParseDiskSize(s); return err }, wholeUnit.String()),
			doc: "Size of the disk in GB, or with a unit.", def: "256", example: "512"},
		{name: "ephemeral_storage", is: checked(text().Or(yaml11.Int), func(s string) error { _, err := ParseDiskSize(s); return err }, wholeUnit.String()),
			doc: "Scratch space of a pod in GB, or with a unit; Kubernetes only.", example: "100"},
		{name: "image_id", is: text().Or(yaml11.Null).With(atLeastOne(mapOf(text()))),
			doc: "Machine image, or docker:IMAGE to run in a container; a map gives one per region.", example: "docker:ubuntu:24.04"},
		{name: "disk_tier", is: choiceAnyCase(DiskTiers...), doc: "Speed of the disk.", def: "medium", example: "best"},
		{name: "network_tier", is: choiceAnyCase(NetworkTiers...), doc: "Speed of the network between nodes.", example: "best"},
		{name: "local_disk", is: checked(text().Or(yaml11.Number), errOnly(ParseLocalDisk), `((nvme|ssd)(:[0-9.]+\+?)?|[0-9.]+\+?)`),
			doc: "A disk inside the machine: kind:GB, kind, or GB, with + for at least.", example: "nvme:375+"},
		{name: "max_hourly_cost", is: checkedNumber(number(), checkPositive), doc: "The most a node may cost per hour, in dollars, also if its price rises before it is rented or started again, and the most that is bid for it.", example: "2.5"},
		{name: "estimated_runtime", is: checkedNumber(number(), checkPositive),
			doc: "Minutes that the task takes on such machines, for the cost and the time in plans.", def: "that of the task", example: "45"},
		{name: "ports", is: checked(text().Or(yaml11.Int), checkPorts, `[0-9 ,-]+`).With(list(checked(text().Or(yaml11.Int), checkPorts, `[0-9 ,-]+`))),
			doc: "Ports that are opened to the network: numbers and ranges.", example: "[8080, 9000-9010]"},
		{name: "labels", is: mapOf(text()), doc: "Labels (tags) on the machines.", example: "{team: vision}"},
		{name: "volumes", is: list(gcpVolumeSchema()), doc: "Network and instance disks on Google Cloud.", example: "[{path: /data, name: disk1}]"},
		{name: "autostop", is: textGrammar(boolean().Or(yaml11.Int|yaml11.Text), checkAutostop, durationPattern).With(autostopSchema()).Or(yaml11.Null),
			doc: "When an idle cluster gives itself back: true, a time, or a map.", def: "never", example: "30m"},
		{name: "priority", is: integer().AtLeast(-1000).AtMost(1000), doc: "Place in the queue: higher goes first.", def: "0", example: "100"},
		{name: "priority_class", is: text(), doc: "Name of a scheduling class.", example: "high"},
		{name: "_docker_login_config", is: anything(), internal: true},
		{name: "_docker_username_for_runpod", is: anything(), internal: true},
		{name: "_is_image_managed", is: anything(), internal: true},
		{name: "_requires_fuse", is: anything(), internal: true},
		{name: "_cluster_config_overrides", is: openObject().Or(yaml11.Null), internal: true},
		{name: "_no_missing_accel_warnings", is: anything(), internal: true},
	}
}

// DiskTiers and NetworkTiers are the words of disk_tier and network_tier.
var (
	DiskTiers    = []string{"low", "medium", "high", "ultra", "best"}
	NetworkTiers = []string{"standard", "best"}
)

func autostopSchema() *schema.Spec {
	return object(
		field{name: "idle_minutes", is: integer().AtLeast(0), doc: "Minutes without a job before the cluster goes.", def: "0", example: "10"},
		field{name: "down", is: boolean(), doc: "Whether to delete the cluster instead of stopping it.", def: "false", example: "true"},
		field{name: "wait_for", is: choiceAnyCase(WaitFor...), doc: "What keeps the cluster awake.", def: "jobs_and_ssh", example: "jobs"},
		field{name: "hook", is: text(), internal: true},
		field{name: "hook_timeout", is: integer(), internal: true},
	)
}

// WaitFor has the words of autostop.wait_for.
var WaitFor = []string{"jobs_and_ssh", "jobs", "none"}

func checkAutostop(s string) error {
	_, err := ParseMinutes(s)
	return err
}
