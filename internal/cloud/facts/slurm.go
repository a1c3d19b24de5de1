package facts

import "github.com/skypilot-go/sky/internal/schema"

var slurm = Cloud{
	Name: Slurm, Display: "Slurm", Hardware: Own,
	Prices: &Prices{EachZone: true, CPUs: 2, MemoryPerCPU: 1},
	Settings: func() *schema.Spec {
		options := func() schema.Key {
			o := schema.Dict("Options of sbatch.", (&schema.Spec{Doc: "An option's value; true or null for a bare flag.", Kinds: schema.TextKind | schema.NumberKind | schema.BoolKind | schema.NullKind}).
				Matching(schema.Regexp(`^[^\r\n]*$`, "one line"))).ForTasks()
			return schema.New("sbatch_options", o)
		}
		partitions := schema.New("gpu_partition_map", schema.Dict("Partitions of each kind of GPU.", schema.Text("A partition, or a list.").Or(schema.ListKind).Of(schema.Text("A partition."))))
		cpu := func() schema.Key {
			return schema.New("cpu_partition", schema.Text("Partition of jobs without GPUs.").ForTasks())
		}
		return schema.Section("Slurm clusters.",
			schema.New("allowed_clusters", schema.List("Clusters to use, or all.", schema.Text("A cluster.")).Or(schema.TextKind).Words("all").ByAdmins(schema.Confines)),
			schema.New("provision_timeout", schema.Whole("Seconds to wait for nodes; absent: 120, or a day when a partition is named.")),
			schema.New("pricing", pricing()), options(), partitions, cpu(),
			schema.New("cluster_configs", schema.Dict("Settings of single clusters.", schema.Section("A cluster.",
				schema.New("workdir", schema.Text("Shared folder for files of clusters.")),
				schema.New("tmpdir", schema.Text("Folder for temporary files on nodes.")),
				schema.New("pricing", pricing()), options(), partitions, cpu(),
				schema.New("partition_configs", schema.Dict("Settings of single partitions.", schema.Section("A partition.",
					schema.New("pricing", pricing()), options()))),
			).Opened()).OnServer()),
			identity(localCredentials)).Opened().NoEffect("this version of sky does not use Slurm clusters")
	},
	Workspace: func() *schema.Spec {
		return schema.Section("Slurm clusters in this workspace.").Opened()
	},
	Narrower: func(cluster, partition string) [][]string {
		return [][]string{{"cluster_configs", cluster}, {"cluster_configs", cluster, "partition_configs", partition}}
	},
	Merge:       OneLevel,
	TaskExample: "{cpu_partition: cpu}",
}
