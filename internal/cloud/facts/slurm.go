package facts

import "github.com/skypilot-go/sky/internal/config/keys"

var slurm = Cloud{
	Name: Slurm, Display: "Slurm", Hardware: Own,
	Prices: &Prices{EachZone: true, CPUs: 2, MemoryPerCPU: 1},
	Settings: func() *keys.Spec {
		options := func() keys.Key {
			o := keys.Dict("Options of sbatch.", (&keys.Spec{Doc: "An option's value; true or null for a bare flag.", Kinds: keys.TextKind | keys.NumberKind | keys.BoolKind | keys.NullKind}).
				Matching(keys.Regexp(`^[^\r\n]*$`, "one line"))).ForTasks()
			return keys.New("sbatch_options", o)
		}
		partitions := keys.New("gpu_partition_map", keys.Dict("Partitions of each kind of GPU.", keys.Text("A partition, or a list.").Or(keys.ListKind).Of(keys.Text("A partition."))))
		cpu := func() keys.Key {
			return keys.New("cpu_partition", keys.Text("Partition of jobs without GPUs.").ForTasks())
		}
		return keys.Section("Slurm clusters.",
			keys.New("allowed_clusters", keys.List("Clusters to use, or all.", keys.Text("A cluster.")).Or(keys.TextKind).Words("all").ByAdmins(keys.Confines)),
			keys.New("provision_timeout", keys.Whole("Seconds to wait for nodes; absent: 120, or a day when a partition is named.")),
			keys.New("pricing", pricing()), options(), partitions, cpu(),
			keys.New("cluster_configs", keys.Dict("Settings of single clusters.", keys.Section("A cluster.",
				keys.New("workdir", keys.Text("Shared folder for files of clusters.")),
				keys.New("tmpdir", keys.Text("Folder for temporary files on nodes.")),
				keys.New("pricing", pricing()), options(), partitions, cpu(),
				keys.New("partition_configs", keys.Dict("Settings of single partitions.", keys.Section("A partition.",
					keys.New("pricing", pricing()), options()))),
			)).OnServer()),
			identity(localCredentials))
	},
	Narrower: func(cluster, partition string) [][]string {
		return [][]string{{"cluster_configs", cluster}, {"cluster_configs", cluster, "partition_configs", partition}}
	},
	Merge:       OneLevel,
	TaskExample: "{cpu_partition: cpu}",
}
