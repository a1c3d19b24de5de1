package config

func podConfig() *Spec {
	return anything("Patch for the pod specification.").mapOnly().task().patched()
}

func customMetadata() *Spec {
	return anything("Metadata of everything that is created.").mapOnly().task().patched().
		banned("sky names what it creates itself; remove it", "name", "namespace")
}

func (s *Spec) mapOnly() *Spec { s.Kinds = Map; return s }

func queueKeys() []Key {
	return []Key{
		{"namespace", text("Namespace of pods; absent: the one in the kubeconfig.").admins(rights)},
		{"kueue", section("Kueue.", Key{"local_queue_name", text("Queue of jobs.")}).task()},
		{"quota", section("Quotas.", Key{"queue", text("Queue of jobs; wins over kueue.local_queue_name.")}).open().task()},
	}
}

// contextKeys are what both kubernetes and each of its contexts have.
func contextKeys() []Key {
	return append(queueKeys(),
		Key{"allowed_nodes", section("Nodes to use; one that matches any of these is allowed.",
			Key{"label_selector", dict("Labels that all match.", text("A label's value."))},
			Key{"names", list("Names of nodes.", text("A node."))},
			Key{"ips", list("Addresses of nodes.", text("An address."))}).admins(confines)},
		Key{"networking", choice("How pods are reached.", "nodeport", "portforward").deprecated("remove it; pods are reached through the Kubernetes API")},
		Key{"ports", choice("How ports are opened.", "loadbalancer", "ingress", "podip").def("loadbalancer")},
		Key{"pod_config", podConfig()},
		Key{"custom_metadata", customMetadata()},
		Key{"provision_timeout", whole("Seconds to wait for pods to be scheduled; -1: for ever.").def(10).task()},
		Key{"autoscaler", choice("What adds nodes to the cluster.", "gke", "karpenter", "coreweave", "nebius", "generic")},
		Key{"high_availability", section("Controllers that survive their node.",
			Key{"storage_class_name", text("Storage class of their volumes.")}).inert("managed jobs outlive the server and its machine anyway")},
		Key{"dws", section("GKE's Dynamic Workload Scheduler.",
			Key{"enabled", yesNo("Whether to use it.", false)},
			Key{"max_run_duration", text("How long pods may run.").or(Int)}).task()},
		kubernetesIdentity(),
		runCommands(),
		Key{"apt_mirrors", list("Mirrors to install packages from; an empty list keeps the image's own.",
			text("A host name.").match(pattern(`^[a-zA-Z0-9.-]+$`, "a host name"))).def([]any{"mirrors.wikimedia.org", "mirror.umd.edu"}).inert("sky installs no packages in pods")},
		Key{"set_pod_resource_limits", yesNo("Limit pods to what they request, or to that many times as much.", false).or(Number).min(1).task()},
		Key{"pricing", pricing()},
		Key{"auto_mounts", list("Volumes that every pod mounts.", section("A volume.",
			Key{"volume_name", text("Its name.")},
			Key{"mount_paths", list("Where it appears.", text("A path.").match(pattern(`^(/|~/|~$)`, "a path that begins with / or ~")))},
		).need("volume_name", "mount_paths")).inert("name the volume under volumes of each task")},
		Key{"enable_docker", &Spec{Doc: "Let pods run or build containers.", Default: false,
			Kinds: Bool | Text | Map, Enum: []string{"ALL", "BUILD"}, TaskMay: true,
			Keys: []Key{
				{"mode", choice("What pods may do.", "ALL", "BUILD")},
				{"cache_volume", text("Volume that keeps images.")},
			}}},
	)
}

func kubernetesKeys() *Spec {
	return section("Kubernetes.",
		append([]Key{
			{"allowed_contexts", list("Contexts to use, or all; absent: the current one.", text("A context.")).or(Text).words("all").admins(confines)},
			{"context_configs", dict("Settings of single contexts.", plainly(section("A context.", contextKeys()...).openToNewer()))},
		}, contextKeys()...)...,
	).openToNewer()
}

// plainly ends the special merging of layers under s.
func plainly(s *Spec) *Spec {
	for _, k := range s.Keys {
		k.Patch = false
	}
	return s
}

func workspaceKeys() *Spec {
	disabled := Key{"disabled", yesNo("Do not use the cloud in this workspace.", false)}
	scoped := func(doc string, keys ...Key) *Spec { return section(doc, append(keys, disabled)...) }
	queues := append(queueKeys(), kubernetesIdentity())
	w := section("A workspace.",
		Key{"private", yesNo("Only allowed_users and administrators see it.", false)},
		Key{"allowed_users", list("Who may use a private workspace, by name or id.", text("A user."))},
		Key{"aws", scoped("Amazon Web Services in this workspace.",
			Key{"profile", text("Profile of the AWS configuration to use.")}, capabilities(), identityOrRole())},
		Key{"gcp", scoped("Google Cloud in this workspace.",
			Key{"project_id", text("Project to use.")}, capabilities(), identity(localCredentials))},
		Key{"kubernetes", scoped("Kubernetes in this workspace.", append([]Key{
			{"allowed_contexts", list("Contexts to use, or all.", text("A context.")).or(Text).words("all")},
			{"context_configs", dict("Settings of single contexts.", section("A context.", queues...))},
		}, queues...)...)},
		Key{"ssh", scoped("Own machines in this workspace.",
			Key{"allowed_node_pools", list("Pools to use.", text("A pool."))})},
		Key{"nebius", scoped("Nebius in this workspace.",
			Key{"credentials_file_path", text("Credentials to use.")},
			Key{"tenant_id", text("Tenant.")},
			Key{"domain", text("Address of the API.")})},
	)
	for _, cloud := range clouds {
		if w.key(cloud) == nil {
			w.Keys = append(w.Keys, Key{cloud, scoped("This cloud in this workspace.")})
		}
	}
	s := dict("Workspaces by name; default always exists.", w).serverOnly()
	s.OthersNamed = pattern(`^[a-z]([-_a-z0-9]{0,61}[a-z0-9])?$`,
		"at most 63 lower-case letters, digits, - and _, beginning with a letter and ending with a letter or digit")
	return s
}
