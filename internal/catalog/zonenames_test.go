package catalog

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestZoneNamesComeBack(t *testing.T) {
	s := NewStore(StoreOptions{Dir: t.TempDir(), Offline: true})
	want := map[string]string{"use1-az1": "us-east-1a", "use1-az2": "us-east-1c"}
	for range 2 {
		if err := s.SetZoneNames("aws", "AIDA", want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.zoneNames("aws")
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	files, _ := os.ReadDir(filepath.Join(s.o.Dir, "aws"))
	if len(files) != 1 || len(files[0].Name()) != len("az_mappings-12345678.csv") {
		t.Errorf("%v", files)
	}
}
