package catalog

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// SetZoneNames notes by which names an account of the cloud sees the zones that price
// lists give by ids. The file is the one that [LoadZoneNames] reads; it is left
// alone when nothing changed.
func (s *Store) SetZoneNames(cloud, account string, names map[string]string) error {
	var b strings.Builder
	b.WriteString("AvailabilityZone,AvailabilityZoneName\n")
	for _, id := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s,%s\n", id, names[id])
	}
	path := s.path(cloud, fmt.Sprintf("az_mappings-%x.csv", md5.Sum([]byte(account)))[:len("az_mappings-")+8]+".csv")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, []byte(b.String())) {
		return nil
	}
	return wholefile.Write(path, []byte(b.String()), 0o600)
}
