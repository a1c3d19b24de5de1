package task

import (
	"sync"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// The tables of the task language. Keys stand in the order in which files are
// written back.

const (
	taskNamePattern  = `[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*`
	envKeyPattern    = `[a-zA-Z_][a-zA-Z0-9_]*`
	durationPattern  = `[0-9]+[smhdwSMHDW]?`
	secretRefPattern = `secrets:.+`
)

// language returns the schema of one task, built once.
var language = sync.OnceValue(taskSchema)

// headerLanguage returns the schema of the header of a job group.
var headerLanguage = sync.OnceValue(groupHeaderSchema)

func taskSchema() *schema.Spec {
	s := object(
		field{name: "name", is: matching(taskNamePattern, "letters and digits, with single or double . _ - between them"),
			doc: "Name of the task, shown in lists and logs.", example: "train"},
		field{name: "resources", is: resourcesSchema(),
			doc: "What the task needs on each node: place, processors, accelerators, disk, ports.", def: "a small CPU machine, anywhere", example: "{accelerators: A100:8}"},
		field{name: "blocked_resources", is: blockedSchema(),
			doc: "Patterns of places and machines that are never used, at failover and recovery neither. One matches what equals it in all fields that it gives.", example: "[{infra: aws/us-east-1}, {cloud: gcp, use_spot: true}]"},
		field{name: "estimated_runtime", is: checkedNumber(number(), checkPositive),
			doc: "Minutes that the task takes, for the cost and the time in plans; resources.estimated_runtime is for one candidate.", def: "60", example: "90"},
		field{name: "depends_on", is: text().With(list(text())),
			doc: "Tasks of the same file that must have succeeded before this one begins; [] for none. If no task has it, they run one after the other.", example: "[prepare]"},
		field{name: "max_duration", is: durationSchema(),
			doc: "How long the managed job may take from when it first runs, recoveries included; then it is ended as failed.", def: "no limit", example: "12h"},
		field{name: "schedule", is: scheduleSchema(),
			doc: "Makes a managed job that is submitted again and again. Of several tasks it goes into the header.", example: `{cron: "30 3 * * 1-5", timezone: Europe/Berlin}`},
		field{name: "config", is: configSchema(),
			doc: "Settings of the configuration file that hold for this task only, and its life-cycle hooks.", example: "{hooks: [{run: ./save.sh, events: [preemption]}]}"},
		field{name: "service", is: serviceSchema(),
			doc: "Makes the task a service: replicas behind one endpoint.", example: "{readiness_probe: /health, replicas: 2}"},
		field{name: "pool", is: poolSchema(),
			doc: "Makes the task a pool: warm workers that managed jobs run on.", example: "{workers: 3}"},
		field{name: "num_nodes", is: integer().AtLeast(1),
			doc: "How many nodes to run on, all alike.", def: "1", example: "2"},
		field{name: "inputs", is: dataSchema(),
			doc: "Where the task's input is and its size in GB; counts in the choice of a place.", example: "{s3://bucket/data: 150}"},
		field{name: "outputs", is: dataSchema(),
			doc: "Where the task's output goes and its size in GB; counts in the choice of a place.", example: "{s3://bucket/out: 10}"},
		field{name: "setup", is: script("setup"),
			doc: "Shell commands run on every node at each launch, before run.", example: "pip install -r requirements.txt"},
		field{name: "workdir", is: text().With(gitSchema()), doc: "Folder (or git repository) that is copied to ~/sky_workdir on every node; setup and run start there.", example: "."},
		field{name: "event_callback", is: text(),
			doc: "Shell commands that run whenever the state of the managed job changes.", example: "echo $JOB_STATUS"},
		field{name: "run", is: script("run"),
			doc: "Shell commands of the job itself, run on every node.", example: "python train.py"},
		field{name: "envs", is: named(schema.Free, envKeyPattern, "letters, digits and _, not beginning with a digit"),
			doc: "Environment variables of setup and run. An empty value must be filled by --env.", example: "{EPOCHS: 3}"},
		field{name: "secrets", is: mapOf(schema.Free).With(list(matching(secretRefPattern, `a reference to a stored secret, such as "secrets:HF_TOKEN"`))),
			doc: "Environment variables that are never shown, or references to secrets kept by the server.", example: "{HF_TOKEN: null}"},
		field{name: "managed_secrets", is: list(text().With(&schema.Spec{Kinds: yaml11.Map, MinKeys: 1, MaxKeys: 1, Others: object(
			field{name: "mount_path", is: text(), required: true, doc: "File that the secret is written to.", example: "/etc/key"},
		)})), doc: "Secrets kept by the server, by name, optionally written to a file.", example: "[HF_TOKEN]"},
		field{name: "file_mounts", is: mapOf(text().With(storageSchema())),
			doc: "Files and buckets on the nodes: destination to local path, URL or bucket.", example: "{/data: s3://bucket}"},
		field{name: "file_mounts_mapping", is: openObject().Or(yaml11.Null), internal: true},
		field{name: "volumes", is: mapOf(text().With(volumeMountSchema())),
			doc: "Volumes on the nodes: destination to the name of a volume, or a description.", example: "{/data: my-volume}"},
		field{name: "volume_mounts", is: anything(), internal: true},
		field{name: "api_server_access", is: boolean(),
			doc: "Whether the job may call the API server with its own credentials.", def: "true", example: "false"},
		field{name: "_metadata", is: openObject(), internal: true},
		field{name: "_user_specified_yaml", is: text(), internal: true},
	)
	s.Title = "a task"
	s.Gone = map[string]string{
		"storage":       "put buckets under file_mounts, as DESTINATION: {name: …, source: …}",
		"experimental":  "its contents moved to config and resources",
		"docker_image":  `write "image_id: docker:IMAGE" under resources`,
		"docker":        `write "image_id: docker:IMAGE" under resources`,
		"image_id":      "it goes under resources",
		"spot_recovery": `write "job_recovery" under resources`,
		"job_recovery":  "it goes under resources",
		"candidates":    `write "any_of" or "ordered" under resources`,
		"any_of":        "it goes under resources",
		"ordered":       "it goes under resources",
		"hooks":         "it goes under config",
		"execution":     "it goes into the header, the first document of several",
		"num_gpus":      `write "accelerators: NAME:COUNT" under resources`,
		"env":           `write "envs"`,
		"mounts":        `write "file_mounts"`,
		"command":       `write "run"`,
		"nodes":         `write "num_nodes"`,
		"resource":      `write "resources"`,
	}
	for _, f := range []string{"accelerators", "gpus", "cpus", "memory", "use_spot", "ports", "disk_size", "cloud", "region", "zone", "infra", "instance_type", "autostop", "labels"} {
		s.Gone[f] = "it goes under resources"
	}
	return s
}

func gitSchema() *schema.Spec {
	s := object(
		field{name: "url", is: text(), required: true, doc: "Address of a git repository: https, ssh or user@host:path.", example: "https://github.com/org/project"},
		field{name: "ref", is: text(), doc: "Branch, tag or commit to check out.", def: "the default branch", example: "main"},
	)
	s.Gone = map[string]string{"branch": `write "ref"`, "tag": `write "ref"`, "commit": `write "ref"`, "path": "workdir takes a folder as text, or url and ref"}
	return s
}

// script is shell text.
func script(name string) *schema.Spec {
	s := text()
	s.Hints = map[yaml11.Kind]string{yaml11.List: "Write the commands as one text, one per line, after \"" + name + ": |\"."}
	return s
}
