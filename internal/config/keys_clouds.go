package config

// Why keys are their administrators' on a server with logins.
const (
	executes = "the server executes it"
	connects = "the server connects to it"
	opens    = "it names a file of the server"
	rights   = "it chooses whose rights the server uses, or hands out"
	confines = "it says what users may use"
)

const (
	localCredentials = "LOCAL_CREDENTIALS"
	serviceAccount   = "SERVICE_ACCOUNT"
	noUpload         = "NO_UPLOAD"
)

// Keys that several clouds have.

func prioritize() Key {
	return Key{"prioritize_reservations", yesNo("Use reserved capacity before anything else.", false)}
}

func reservations() Key {
	return Key{"specific_reservations", list("Reservations to use.", text("A reservation."))}
}

func labels() Key {
	return Key{"labels", dict("Labels or tags on everything that is created.", text("A label's value."))}
}

func capabilities() Key {
	return Key{"capabilities", list("What the cloud is used for; absent: all it can do.", choice("A use.", "compute", "storage"))}
}

func internalIPs() Key {
	return Key{"use_internal_ips", yesNo("Give machines no public address and reach them by their private one.", false)}
}

func proxyCommand() Key {
	return Key{"ssh_proxy_command", text("ProxyCommand to reach machines by ssh; with a map, only its regions are used.").or(Null).byRegion(Text | Null).
		admins(executes)}
}

func identity(standard string) Key {
	return Key{"remote_identity", choice("Whose credentials nodes get.", localCredentials, serviceAccount, noUpload).anyCase().def(standard).admins(rights)}
}

// identityOrRole also takes the name of a role, for all or by cluster.
func identityOrRole() Key {
	return Key{"remote_identity", text("Whose credentials nodes get: LOCAL_CREDENTIALS, SERVICE_ACCOUNT, NO_UPLOAD or the name of a role.").
		byCluster().def(localCredentials).admins(rights)}
}

func kubernetesIdentity() Key {
	return Key{"remote_identity", text("Whose credentials pods get: SERVICE_ACCOUNT, LOCAL_CREDENTIALS, NO_UPLOAD or the name of a service account.").
		byRegion(Text).def(serviceAccount).task()}
}

func runCommands() Key {
	return Key{"post_provision_runcmd", list("Commands to run on new machines.",
		text("A command line, or a list of arguments.").or(List).items(text("An argument.")))}
}

func names(doc string) *Spec { return text(doc).or(Null | List).items(text("A name.")) }

func awsKeys() *Spec {
	return section("Amazon Web Services.",
		prioritize(), reservations(),
		Key{"disk_encrypted", yesNo("Encrypt disks.", false)},
		Key{"ssh_user", text("User to log in as.").def("ubuntu").
			match(pattern(`^[A-Za-z_][A-Za-z0-9_.@-]{0,63}$`, "a user's name: letters, digits and . _ @ -"))},
		Key{"security_group_name", text("Security group of machines; absent: one that sky makes.").byCluster()},
		Key{"vpc_name", text("VPC to launch in.").or(Null)},
		Key{"vpc_names", names("VPCs to launch in.")},
		Key{"subnet_names", names("Subnets to launch in.")},
		Key{"use_ssm", yesNo("Reach machines through Systems Manager.", false).admins(executes)},
		Key{"without_agents", yesNo("For tests against an emulator of EC2 (AWS_ENDPOINT_URL) whose instances are records: clusters are up when their instances run, and nothing can run on them. Refused on AWS itself.", false).admins(confines)},
		runCommands(), capabilities(), labels(), internalIPs(), proxyCommand(), identityOrRole(),
	).renamed("instance_tags", "labels")
}

func gcpKeys() *Spec {
	return section("Google Cloud.",
		prioritize(), reservations(),
		Key{"managed_instance_group", section("Launch through a managed instance group (DWS).",
			Key{"run_duration", whole("Seconds that machines live.")},
			Key{"provision_timeout", whole("Seconds to wait for capacity.").def(900)}).need("run_duration").task()},
		Key{"force_enable_external_ips", yesNo("Give machines public addresses whatever the network says.", false)},
		Key{"enable_gvnic", yesNo("Use gVNIC network cards.", false).task()},
		Key{"enable_gpu_direct", yesNo("Use GPUDirect between machines.", false).task()},
		Key{"placement_policy", text("Placement policy of machines.").task()},
		Key{"vpc_name", text("VPC to launch in, with its project when shared.").or(Null).task().
			match(pattern(`^(?:[-a-z0-9]+/)?[-a-z0-9]+$`, `a VPC name or "project/name"`))},
		Key{"subnet_names", names("Subnets to launch in.").task()},
		capabilities(), labels(), internalIPs(), proxyCommand(), identity(localCredentials),
	).renamed("instance_tags", "labels")
}

func azureKeys() *Spec {
	id := identityOrRole()
	id.TaskMay, id.Admins = true, ""
	return section("Microsoft Azure.",
		Key{"storage_account", text("Storage account for buckets.")},
		Key{"resource_group_vm", text("Resource group of machines; absent: one per cluster.")},
		Key{"vpc_name", text("Virtual network to launch in.").task()},
		labels(), capabilities(), internalIPs(), proxyCommand(), id,
	).renamed("instance_tags", "labels")
}

func ociKeys() *Spec {
	return section("Oracle Cloud.",
		Key{"region_configs", dict("Settings of regions; the entry default serves the rest.", section("A region.",
			Key{"compartment_ocid", text("Compartment to launch in.")},
			Key{"image_tag_general", text("Image of machines.").def("skypilot:cpu-ubuntu-2204")},
			Key{"image_tag_gpu", text("Image of machines with GPUs.").def("skypilot:gpu-ubuntu-2204")},
			Key{"vcn_ocid", text("Network to launch in.")},
			Key{"vcn_subnet", text("Subnet to launch in.")},
		).renamed("oci_config_profile", "the profile of ~/.oci/config that OCI_CLI_PROFILE names"))},
		identity(localCredentials),
	).open()
}

func vastKeys() *Spec {
	return section("Vast.",
		Key{"datacenter_only", yesNo("Use machines in data centres only.", false).task()},
		Key{"create_instance_kwargs", section("More fields for creating an instance.",
			Key{"login", anything("Registry login.").secret()},
			Key{"api_key", anything("API key.").secret()}).open().task()},
		identity(localCredentials))
}

func nebiusKeys() *Spec {
	return section("Nebius.",
		internalIPs(), proxyCommand(),
		Key{"use_static_ip_address", yesNo("Keep a machine's public address when it stops.", false)},
		Key{"tenant_id", text("Tenant.").admins(rights)},
		Key{"domain", text("Address of the API.").admins(connects)},
		Key{"security_group_name", text("Security group of machines.")},
		Key{"region_configs", dict("Settings of regions.", section("A region.",
			Key{"project_id", text("Project to launch in.")},
			Key{"subnet_id", text("Subnet to launch in.")},
			Key{"fabric", text("InfiniBand fabric.")},
			Key{"filesystems", list("Shared file systems to attach.", section("A file system.",
				Key{"filesystem_id", text("Its id.")},
				Key{"attach_mode", choice("How it is attached.", "READ_WRITE", "READ_ONLY")},
				Key{"mount_path", text("Where it appears.")}))},
		).open())},
		identity(localCredentials),
	).open()
}

func pricing() *Spec {
	rate := func(doc string) *Spec { return number(doc).min(0) }
	return section("Prices per hour to plan with; free when absent.",
		Key{"cpu", rate("Of one vCPU.")},
		Key{"memory", rate("Of one GiB of memory.")},
		Key{"accelerators", dict("Of one accelerator of each kind.", rate("Price per hour."))})
}

func slurmKeys() *Spec {
	options := func() Key {
		o := dict("Options of sbatch.", (&Spec{Doc: "An option's value; true or null for a bare flag.", Kinds: Text | Number | Bool | Null}).
			match(pattern(`^[^\r\n]*$`, "one line"))).task()
		return Key{"sbatch_options", o}
	}
	partitions := Key{"gpu_partition_map", dict("Partitions of each kind of GPU.", text("A partition, or a list.").or(List).items(text("A partition.")))}
	cpu := func() Key { return Key{"cpu_partition", text("Partition of jobs without GPUs.").task()} }
	return section("Slurm clusters.",
		Key{"allowed_clusters", list("Clusters to use, or all.", text("A cluster.")).or(Text).words("all").admins(confines)},
		Key{"provision_timeout", whole("Seconds to wait for nodes; absent: 120, or a day when a partition is named.")},
		Key{"pricing", pricing()}, options(), partitions, cpu(),
		Key{"cluster_configs", dict("Settings of single clusters.", section("A cluster.",
			Key{"workdir", text("Shared folder for files of clusters.")},
			Key{"tmpdir", text("Folder for temporary files on nodes.")},
			Key{"pricing", pricing()}, options(), partitions, cpu(),
			Key{"partition_configs", dict("Settings of single partitions.", section("A partition.",
				Key{"pricing", pricing()}, options()))},
		)).serverOnly()},
		identity(localCredentials))
}

func sshKeys() *Spec {
	pod := []Key{
		{"pod_config", podConfig()},
		{"provision_timeout", whole("Seconds to wait for nodes; -1: for ever.").def(10).task()},
		{"custom_metadata", customMetadata()},
	}
	for i := range pod { // layers of ssh merge plainly
		pod[i].Patch = false
	}
	return section("Own machines, in pools.",
		append([]Key{
			{"allowed_node_pools", list("Pools to use; absent: all.", text("A pool.")).admins(confines)},
			{"context_configs", dict("Settings of single pools.", section("A pool.", pod...))},
			identity(serviceAccount),
		}, pod...)...)
}
