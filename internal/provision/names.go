package provision

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// names gives attempts the names under which clouds know their machines. Where
// it is not certain that a name's machines are gone, the next attempt gets
// another one: a machine that appears late belongs then to nobody and is swept,
// and giving it back does no harm to the cluster.
type names struct {
	base  string
	taken map[string]bool // cloud/name
}

func newNames(base string) names { return names{base: base, taken: map[string]bool{}} }

// take returns the first name that is free in a cloud, at most max bytes long
// (0: any length).
func (n *names) take(cloud string, max int) string {
	for i := 1; ; i++ {
		name := fit(n.base, i, max)
		if !n.taken[cloud+"/"+name] {
			n.mark(cloud, name)
			return name
		}
	}
}

// mark says that machines may exist under the name.
func (n *names) mark(cloud, name string) { n.taken[cloud+"/"+name] = true }

// free says that none do.
func (n *names) free(cloud, name string) { delete(n.taken, cloud+"/"+name) }

// fit is the i-th variant of a name in at most max bytes. What is cut off is
// replaced by a digest, so that names which differ stay different.
func fit(base string, i, max int) string {
	suffix := ""
	if i > 1 {
		suffix = fmt.Sprintf("-%d", i)
	}
	if max > 0 && len(base)+len(suffix) > max {
		suffix = fmt.Sprintf("-x%x", sha256.Sum256([]byte(base)))[:12] + suffix
		base = strings.TrimRight(base[:len(base)-(len(base)+len(suffix)-max)], "-._")
	}
	return base + suffix
}
