//go:build nodes && linux

package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// registry serves one image under any name; a private one asks for a login. Its
// tags are the processors that the image is said to be for, and "empty" for
// one without a shell. Others are not there.
type registry struct {
	address string // host:port, from the hosts
	private bool
	blobs   map[string][]byte
	tags    map[string][]byte // manifests
}

const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	registryUser = "robot"
	registryPass = "hunter2"
)

func startRegistry(t *testing.T, private bool) *registry {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(given["SKY_TEST_BRIDGE"], "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{address: l.Addr().String(), private: private, blobs: map[string][]byte{}, tags: map[string][]byte{}}
	layer, err := os.ReadFile(filepath.Join(place, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	r.add("amd64", "amd64", layer)
	r.add("arm64", "arm64", layer)
	r.add("empty", "amd64", make([]byte, 1024))
	s := &http.Server{Handler: r}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return r
}

func (r *registry) put(b []byte) map[string]any {
	sum := sha256.Sum256(b)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	r.blobs[digest] = b
	return map[string]any{"digest": digest, "size": len(b)}
}

func (r *registry) add(tag, arch string, layer []byte) {
	l := r.put(layer)
	config, _ := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin", "FLAVOUR=thin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{l["digest"]}},
	})
	c := r.put(config)
	l["mediaType"], c["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.container.image.v1+json"
	manifest, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": c, "layers": []any{l}})
	r.tags[tag] = manifest
	r.put(manifest)
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	refuse := func(status int, code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": strings.ToLower(strings.ReplaceAll(code, "_", " "))}}})
	}
	user, pass, _ := req.BasicAuth()
	if r.private && (user != registryUser || pass != registryPass) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		refuse(http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	parts := strings.Split(req.URL.Path, "/")
	var body []byte
	switch last := parts[len(parts)-1]; {
	case req.URL.Path == "/v2/":
		body = []byte("{}")
	case strings.Contains(req.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", manifestType)
		if body = r.tags[last]; body == nil {
			body = r.blobs[last]
		}
		if body == nil {
			refuse(http.StatusNotFound, "MANIFEST_UNKNOWN")
			return
		}
		sum := sha256.Sum256(body)
		w.Header().Set("Docker-Content-Digest", "sha256:"+hex.EncodeToString(sum[:]))
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		if body = r.blobs[last]; body == nil {
			refuse(http.StatusNotFound, "BLOB_UNKNOWN")
			return
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if req.Method != http.MethodHead {
		w.Write(body)
	}
}
