package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// residence is where a cluster was put. It is written before the first pod is
// made, so that settings which change later hide no cluster.
type residence struct {
	ID        cloud.ClusterID `json:"id"`
	Context   string          `json:"context"`
	Namespace string          `json:"namespace"`
}

func (p *Provider) residenceFile(id cloud.ClusterID, w *target) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{id.Installation, id.Name, id.Hash, w.context, w.namespace}, "\x00")))
	return filepath.Join(p.o.Dir, hex.EncodeToString(sum[:12])+".json")
}

// remember notes where a cluster is about to be.
func (p *Provider) remember(id cloud.ClusterID, w *target) error {
	if p.o.Dir == "" {
		return nil
	}
	file := p.residenceFile(id, w)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	b, err := json.Marshal(residence{id, w.context, w.namespace})
	if err == nil {
		err = wholefile.WriteSynced(file, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting where the cluster is: %w", err)
	}
	return nil
}

// remembered are the places of the clusters that id is about: all parts that it
// has must be equal.
func (p *Provider) remembered(id cloud.ClusterID) ([]residence, error) {
	if p.o.Dir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(p.o.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []residence
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // forgotten meanwhile
		}
		var r residence
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("reading where clusters are: %s: %w", file, err)
		}
		equal := func(want, have string) bool { return want == "" || want == have }
		if equal(id.Installation, r.ID.Installation) && equal(id.Name, r.ID.Name) && equal(id.Hash, r.ID.Hash) {
			out = append(out, r)
		}
	}
	return out, nil
}

// forget ends the memory of a cluster that is gone.
func (p *Provider) forget(id cloud.ClusterID) error {
	known, err := p.remembered(id)
	if err != nil {
		return err
	}
	for _, r := range known {
		file := p.residenceFile(r.ID, &target{client: &client{context: r.Context}, namespace: r.Namespace})
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
