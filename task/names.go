package task

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Rules for the names of clusters, services, volumes, workspaces.

var (
	clusterName   = lazyregexp.New(`^[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	taskName      = lazyregexp.New(`^` + taskNamePattern + `$`)
	envKey        = lazyregexp.New(`^` + envKeyPattern + `$`)
	workspaceName = lazyregexp.New(`^[a-z]([-_a-z0-9]*[a-z0-9])?$`)
	dnsSubdomain  = lazyregexp.New(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// ValidClusterName refuses names that a cluster (service, pool) cannot have.
func ValidClusterName(name string) error {
	if clusterName.MatchString(name) {
		return nil
	}
	return &Error{
		Field: "cluster name", Class: "sky.exceptions.InvalidClusterNameError",
		Message: fmt.Sprintf("%q cannot name a cluster: a name begins with a letter, ends with a letter or digit, and has letters, digits, - _ and . between", name),
	}
}

// ValidTaskName refuses names that a task cannot have.
func ValidTaskName(name string) error {
	if taskName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q cannot name a task: use letters and digits, with single or double . _ - between them", name)
}

// ValidWorkspaceName refuses names that a workspace cannot have.
func ValidWorkspaceName(name string) error {
	if workspaceName.MatchString(name) && len(name) <= 63 {
		return nil
	}
	return fmt.Errorf("%q cannot name a workspace: use up to 63 lower-case letters, digits, - and _, beginning with a letter and ending with a letter or digit", name)
}

// ValidVolumeName refuses names that a volume of the type cannot have.
func ValidVolumeName(name, volumeType string) error {
	limit := 253
	if strings.HasPrefix(volumeType, "runpod") {
		limit = 30
	} else if !dnsSubdomain.MatchString(name) {
		return fmt.Errorf("%q cannot name a volume: use lower-case letters, digits, - and ., beginning and ending with a letter or digit", name)
	}
	if name == "" || len(name) > limit {
		return fmt.Errorf("%q cannot name a volume: it should have 1 to %d characters", name, limit)
	}
	return nil
}

// GeneratedClusterName is a new name for a cluster of user: sky-1f3a-ann.
func GeneratedClusterName(user string) string {
	return "sky-" + randomHex() + "-" + CleanUser(user)
}

// GeneratedServiceName is a new name for a service: sky-service-1f3a.
func GeneratedServiceName() string { return "sky-service-" + randomHex() }

// GeneratedPoolName is a new name for a pool: sky-pool-1f3a.
func GeneratedPoolName() string { return "sky-pool-" + randomHex() }

func randomHex() string {
	var b [2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// CleanUser makes a user name fit into other names: at most 63 characters of
// a-z 0-9 - _, not beginning with a digit or hyphen. "user" if nothing is left.
func CleanUser(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	name = strings.TrimLeft(name, "0123456789-")
	name = strings.TrimRight(name[:min(len(name), 63)], "-")
	if strings.Trim(name, "_") == "" {
		return "user"
	}
	return name
}

// NameOnCloud is what a cluster is called in the cloud: "-" for . and _, lower
// case, the user's hash at the end, at most limit characters (0: no limit).
//
// Different clusters get different names: one whose name or user was changed or
// cut, or that looks like such a name, has a digest of both before the user's hash.
func NameOnCloud(name, userHash string, limit int) string {
	clean := strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(name))
	own := clean + "-" + userHash
	if clean == name && plainUser.MatchString(userHash) && !digested.MatchString(name) && (limit <= 0 || len(own) <= limit) {
		return own
	}
	suffix := "-x" + digest(name+"\x00"+userHash) + "-"
	if plainUser.MatchString(userHash) {
		suffix += userHash
	} else {
		suffix += digest(userHash)
	}
	if limit > 0 {
		clean = clean[:min(len(clean), max(limit-len(suffix), 1))]
	}
	return strings.TrimRight(clean, "-") + suffix
}

var (
	// plainUser are users' ids that are parts of names as they are, and whose
	// beginning can be told in a name that ends with one.
	plainUser = lazyregexp.New(`^([0-9a-z]{1,15}|sa-[0-9a-f]{16})$`)
	// digested are names that end as NameOnCloud lets those end that it changed.
	digested = lazyregexp.New(`-x[0-9a-f]{10}$`)
)

// longestFile is how long a name may be that is a file's name as it is: file systems
// take 255 bytes, and more is put behind it.
const longestFile = 200

// FileName is what a file for a cluster is called, also where upper and lower case
// are one.
func FileName(name string) string {
	switch {
	case len(name) > longestFile:
		return name[:longestFile-20] + "-x" + digest(name)
	case name != strings.ToLower(name):
		return name + "-x" + digest(name)
	}
	return name
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:5])
}
