package catalog

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SetZoneNames notes by which names an AWS account sees the zones that price
// lists give by ids. The file is the one that [LoadZoneNames] reads; it is left
// alone when nothing changed.
func (s *Store) SetZoneNames(account string, names map[string]string) error {
	var b strings.Builder
	b.WriteString("AvailabilityZone,AvailabilityZoneName\n")
	for _, id := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s,%s\n", id, names[id])
	}
	path := s.path("aws", fmt.Sprintf("az_mappings-%x.csv", md5.Sum([]byte(account)))[:len("az_mappings-")+8]+".csv")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, []byte(b.String())) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".az_mappings-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(b.String()); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
