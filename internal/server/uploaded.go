package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/skypilot-go/sky/api"
)

// A client that uploaded its files sends, with each task, a mapping from its own
// paths to paths in the upload. Before the request is recorded those paths in
// the task become paths on this machine, so that no verb knows of uploads.

// uploadFields are the parts of a body that are about uploads.
type uploadFields struct {
	Task   string  `json:"task"`
	BlobID *string `json:"file_mounts_blob_id"`
}

// localised is the body with its task's paths on this machine. Bodies without an
// upload are returned as they came.
func (s *Server) localised(ctx context.Context, raw []byte, user string, workdirOnly bool) ([]byte, error) {
	var b uploadFields
	if json.Unmarshal(raw, &b) != nil || !strings.Contains(b.Task, mappingKey) {
		return raw, nil
	}
	dir := LegacyUploadDir(user)
	if b.BlobID != nil {
		if !blobID.MatchString(*b.BlobID) {
			return nil, &api.Error{Type: api.ErrValue, Message: "file_mounts_blob_id must be 64 hexadecimal digits."}
		}
		dir = BlobDir(user, *b.BlobID)
	}
	m := mapper{dir: s.below(dir), workdirOnly: workdirOnly}
	anywhere := s.Store.Shared() && b.BlobID != nil // another server may run it
	if anywhere {
		m.dir = anyHome + "/" + dir
	}
	task, err := m.dag(b.Task)
	if err != nil || !m.used {
		return raw, err
	}
	if anywhere {
		ok, err := s.Uploads.exists(ctx, user, *b.BlobID)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errUploadGone
		}
	} else if info, err := os.Stat(m.dir); err != nil || !info.IsDir() {
		return nil, errUploadGone
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if fields["task"], err = json.Marshal(task); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

const mappingKey = "file_mounts_mapping"

// mapper rewrites tasks.
type mapper struct {
	dir         string // where the upload is
	workdirOnly bool   // all else was mounted when the cluster was launched
	used        bool   // a task had a mapping
	nodes       int    // values written
}

// dag rewrites the tasks of a multi-document YAML. A text that is no such YAML
// is left to the verb, which says what is wrong with it.
func (m *mapper) dag(text string) (string, error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	var out bytes.Buffer
	for {
		var doc any
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			if !m.used {
				return text, nil
			}
			return out.String(), nil
		case err != nil:
			m.used = false
			return text, nil
		}
		if t, ok := doc.(map[string]any); ok {
			if err := m.task(t); err != nil {
				return "", err
			}
		}
		// JSON is YAML in which no text can be taken for a number or a date.
		doc, err := m.exact(doc)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(doc)
		if err != nil {
			m.used = false
			return text, nil
		}
		out.WriteString("---\n")
		out.Write(b)
		out.WriteByte('\n')
	}
}

// maxNodes bounds what a task becomes when its aliases are written out.
const maxNodes = 1_000_000

var errTooLarge = &api.Error{Type: api.ErrValue, Message: "The task is too large: its YAML aliases stand for more than a million values."}

// exact keeps 8.0 apart from 8 when v is written as JSON.
func (m *mapper) exact(v any) (any, error) {
	if m.nodes++; m.nodes > maxNodes {
		return nil, errTooLarge
	}
	var err error
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64)), nil
		}
	case []any:
		for i := range v {
			if v[i], err = m.exact(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = m.exact(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (m *mapper) task(t map[string]any) error {
	given, _ := t[mappingKey].(map[string]any)
	delete(t, mappingKey)
	if len(given) == 0 {
		return nil
	}
	m.used = true
	here := map[string]string{} // client's path → ours
	for theirs, v := range given {
		in, _ := v.(string)
		in = path.Clean(strings.TrimPrefix(filepath.ToSlash(in), "/"))
		if !filepath.IsLocal(filepath.FromSlash(in)) {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%s maps %s to a path outside of the upload.", mappingKey, quoted(theirs))}
		}
		here[theirs] = filepath.Join(m.dir, filepath.FromSlash(in))
	}
	moved := func(v any) any {
		if s, ok := v.(string); ok && here[s] != "" {
			return here[s]
		}
		return v
	}
	move := func(in map[string]any, key string) {
		if v, ok := in[key]; ok {
			in[key] = moved(v)
		}
	}
	move(t, "workdir")
	if m.workdirOnly {
		return nil
	}
	mounts, _ := t["file_mounts"].(map[string]any)
	for to, from := range mounts {
		bucket, ok := from.(map[string]any)
		if !ok {
			mounts[to] = moved(from)
			continue
		}
		move(bucket, "source")
		list, _ := bucket["source"].([]any)
		for i := range list {
			list[i] = moved(list[i])
		}
	}
	if service, ok := t["service"].(map[string]any); ok {
		if tls, ok := service["tls"].(map[string]any); ok {
			move(tls, "keyfile")
			move(tls, "certfile")
		}
	}
	return nil
}
