package task

func configSchema() *schema {
	hook := object(
		field{name: "run", is: &schema{types: []string{"string"}, maxLen: 16384}, required: true, doc: "Shell commands for the head node.", example: "./save.sh"},
		field{name: "events", is: &schema{types: []string{"array"}, items: choice(false, HookEvents...), minItems: 1, unique: true}, doc: "When it runs.", def: "[stop, preemption, down]", example: "[preemption]"},
		field{name: "timeout", is: integer().from(1), doc: "Seconds it may take.", def: "3600", example: "300"},
	)
	hooks := list(hook)
	hooks.maxItems = 32
	any := func(name, doc string) field { return field{name: name, is: anything(), doc: doc} }
	return object(
		field{name: "active_workspace", is: text(), doc: "Workspace the task belongs to.", example: "team-a"},
		field{name: "docker", is: object(any("run_options", "Further options of docker run.")), doc: "Containers.", example: "{run_options: --ipc=host}"},
		field{name: "nvidia_gpus", is: object(field{name: "disable_ecc", is: boolean(), doc: "Whether to switch off ECC memory.", def: "false", example: "true"}), doc: "NVIDIA GPUs.", example: "{disable_ecc: true}"},
		field{name: "ssh", is: object(any("custom_metadata", "Labels and annotations of everything created."), any("pod_config", "Pod fields laid over sky's own."), any("provision_timeout", "Seconds to wait for a pod.")), doc: "Own machines.", example: "{provision_timeout: 60}"},
		field{name: "kubernetes", is: openObject(
			any("custom_metadata", "Labels and annotations of everything created."), any("pod_config", "Pod fields laid over sky's own."),
			any("provision_timeout", "Seconds to wait for a pod."), any("dws", "Dynamic Workload Scheduler."), any("kueue", "Kueue queues."), any("quota", "Quotas."),
			any("remote_identity", "Service account of the pods."), any("enable_docker", "Whether containers may run docker."), any("set_pod_resource_limits", "Whether pods get limits."),
		), doc: "Kubernetes.", example: "{provision_timeout: 600}"},
		field{name: "azure", is: object(any("remote_identity", "Identity of the machines."), any("vpc_name", "Network to use.")), doc: "Azure.", example: "{vpc_name: net}"},
		field{name: "gcp", is: object(
			any("vpc_name", "Network to use."), any("subnet_names", "Subnets to use."), any("managed_instance_group", "Wait in Google's queue for GPUs."),
			any("enable_gvnic", "Whether to use gVNIC."), any("enable_gpu_direct", "Whether to use GPUDirect."), any("placement_policy", "How machines are placed."),
		), doc: "Google Cloud.", example: "{enable_gvnic: true}"},
		field{name: "vast", is: object(any("datacenter_only", "Whether to use data centres only."), any("create_instance_kwargs", "Further fields of the create call.")), doc: "Vast.", example: "{datacenter_only: true}"},
		field{name: "slurm", is: object(any("sbatch_options", "Further options of sbatch."), any("cpu_partition", "Partition for tasks without GPUs.")), doc: "Slurm.", example: "{cpu_partition: cpu}"},
		field{name: "hooks", is: hooks, doc: "Commands that run on the head node before the cluster goes away.", example: "[{run: ./save.sh, events: [preemption]}]"},
	)
}

// HookEvents has the words of config.hooks[].events.
var HookEvents = []string{"stop", "preemption", "down"}
