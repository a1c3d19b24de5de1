package task

import (
	"fmt"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func dataSchema() *schema.Spec {
	size := checkedNumber(number(), func(s string) error {
		if _, ok := parseDecimal(s); !ok {
			return fmt.Errorf("should be a size in GB, not %s", s)
		}
		return nil
	})
	return single(size)
}

func gcpVolumeSchema() *schema.Spec {
	return object(
		field{name: "path", is: text(), required: true, doc: "Where the disk is mounted.", example: "/mnt/data"},
		field{name: "name", is: text(), doc: "Name of the disk, which is made if it does not exist.", example: "disk1"},
		field{name: "storage_type", is: choice("network", "instance"), doc: "A network disk, or one inside the machine.", def: "network", example: "network"},
		field{name: "size", is: integer().AtLeast(1), doc: "Size in GB of a disk that is made.", example: "100"},
		field{name: "disk_tier", is: choiceAnyCase(DiskTiers...), doc: "Speed of the disk.", def: "best", example: "best"},
		field{name: "attach_mode", is: choice("read_only", "read_write"), doc: "How it is attached.", def: "read_write", example: "read_only"},
		field{name: "auto_delete", is: boolean(), doc: "Whether it goes with the cluster.", def: "false", example: "true"},
	)
}

func storageSchema() *schema.Spec {
	sizes := func() *schema.Spec {
		return matching(`[0-9]+[bkmgtpBKMGTP]?`, `a size such as "512M" or "10G"`).Or(yaml11.Int)
	}
	ages := func() *schema.Spec {
		return matching(`([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w|M|y))+`, `a time such as "30s" or "1h30m"`)
	}
	return object(
		field{name: "name", is: text(), doc: "Bucket to use, made if it does not exist.", example: "my-bucket"},
		field{name: "source", is: text().With(&schema.Spec{Kinds: yaml11.List, Items: text(), MinItems: 1}), doc: "Local folder(s) to upload, or the URL of a bucket.", example: "./data"},
		field{name: "store", is: choiceAnyCase(Stores...), doc: "Kind of object store.", def: "that of the task's cloud", example: "s3"},
		field{name: "persistent", is: boolean(), doc: "Whether the bucket outlives the cluster.", def: "true", example: "false"},
		field{name: "mode", is: choiceAnyCase(StorageModes...), doc: "Mount the bucket, copy it, or mount it with a local cache.", def: "MOUNT", example: "MOUNT_CACHED"},
		field{name: "type", is: choiceAnyCase(StorageTypes...), doc: "How the files are used; sets up the cache of MOUNT_CACHED.", example: "DATASET_RO"},
		field{name: "config", is: object(
			field{name: "mount_cached", is: object(
				field{name: "transfers", is: integer().AtLeast(1), doc: "Uploads at the same time.", example: "8"},
				field{name: "buffer_size", is: sizes(), doc: "Memory per open file.", example: "16M"},
				field{name: "vfs_cache_max_size", is: sizes(), doc: "Most disk that the cache takes.", def: "10G", example: "50G"},
				field{name: "vfs_cache_max_age", is: ages(), doc: "How long unused files stay in the cache.", example: "1h"},
				field{name: "vfs_read_ahead", is: sizes(), doc: "How far to read ahead.", example: "128M"},
				field{name: "vfs_read_chunk_size", is: sizes(), doc: "Size of the pieces that are read.", example: "32M"},
				field{name: "vfs_read_chunk_streams", is: integer().AtLeast(0), doc: "Pieces read at the same time.", example: "16"},
				field{name: "vfs_write_back", is: ages(), doc: "How long to wait before a written file is uploaded.", def: "1s", example: "5s"},
				field{name: "read_only", is: boolean(), doc: "Whether writing is refused.", def: "false", example: "true"},
			), doc: "The cache of MOUNT_CACHED.", example: "{transfers: 8}"},
			field{name: "mount", is: object(
				field{name: "read_only", is: boolean(), doc: "Whether writing is refused.", def: "false", example: "true"},
				field{name: "hf_mount_args", is: list(text()), internal: true}, // see checkStorage
			), doc: "The mount of MOUNT.", example: "{read_only: true}"},
			field{name: "disk_size", is: checked(text().Or(yaml11.Int), func(s string) error { _, err := ParseDiskSize(s); return err }, wholeUnit.String()), doc: "Size of a disk (store: volume) in GB.", example: "100"},
			field{name: "disk_tier", is: choiceAnyCase(DiskTiers...), doc: "Speed of a disk (store: volume).", example: "best"},
			field{name: "storage_type", is: choice("network", "instance"), doc: "Kind of a disk (store: volume).", example: "network"},
			field{name: "attach_mode", is: choice("read_only", "read_write"), doc: "How a disk (store: volume) is attached.", example: "read_write"},
		), doc: "Details of the mount.", example: "{mount: {read_only: true}}"},
		field{name: "_is_sky_managed", is: boolean().Or(yaml11.Null), internal: true},
		field{name: "_bucket_sub_path", is: text().Or(yaml11.Null), internal: true},
		field{name: "_force_delete", is: boolean().Or(yaml11.Null), internal: true},
	)
}

// Words of the storage fields, in their canonical case.
var (
	Stores       = []string{"S3", "GCS", "AZURE", "R2", "IBM", "OCI", "NEBIUS", "COREWEAVE", "VASTDATA", "HF", "VOLUME"}
	StorageModes = []string{"MOUNT", "COPY", "MOUNT_CACHED"}
	StorageTypes = []string{"MODEL_CHECKPOINT_RO", "MODEL_CHECKPOINT_RW", "DATASET_RO", "DATASET_RW"}
)

func volumeMountSchema() *schema.Spec {
	return object(
		field{name: "name", is: text(), doc: "An existing volume.", example: "my-volume"},
		field{name: "sub_path", is: matching(`[a-zA-Z0-9._-][a-zA-Z0-9./_-]*`, "a relative path of letters, digits and . / _ -"), doc: "Folder inside the volume.", example: "runs/1"},
		field{name: "size", is: text().Or(yaml11.Int), doc: "Size of a volume that lives as long as the cluster.", example: "100"},
		field{name: "type", is: choice("k8s-pvc"), doc: "Kind of a volume that lives as long as the cluster.", def: "k8s-pvc", example: "k8s-pvc"},
		field{name: "labels", is: mapOf(text()), doc: "Labels on the volume.", example: "{team: vision}"},
		field{name: "config", is: openObject(), doc: "Settings of the volume: storage class, access mode, namespace.", example: "{access_mode: ReadWriteMany}"},
	)
}
