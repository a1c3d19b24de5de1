package buckets

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// presets are what a type stands for under config.mount_cached. What a task says itself
// holds over them.
var presets = map[string]map[string]any{
	"MODEL_CHECKPOINT_RO": {"vfs_read_chunk_streams": 16, "vfs_read_chunk_size": "32M", "read_only": true},
	"MODEL_CHECKPOINT_RW": {"vfs_read_chunk_streams": 16, "vfs_read_chunk_size": "32M", "transfers": 8},
	"DATASET_RO":          {"vfs_read_chunk_streams": 0, "vfs_read_chunk_size": "8M", "read_only": true},
	"DATASET_RW":          {"vfs_read_chunk_streams": 0, "vfs_read_chunk_size": "8M", "transfers": 16},
}

// howMounted is how a task wants a bucket to be mounted. c may be nil.
func howMounted(s task.StorageMount, c *config.Config) (cfg agentapi.MountConfig, readOnly bool, err error) {
	section := func(name string) map[string]any { m, _ := s.Config[name].(map[string]any); return m }
	if s.Mode != string(agentapi.MountCached) {
		readOnly, _ = section("mount")["read_only"].(bool)
		return cfg, readOnly, nil
	}
	keys := maps.Clone(presets[s.Type])
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, section("mount_cached"))
	if c != nil && keys["transfers"] == nil && c.Bool("data", "mount_cached", "sequential_upload") {
		keys["transfers"] = 1
	}
	r := &reader{keys: keys}
	cfg = agentapi.MountConfig{
		Transfers: r.count("transfers"), BufferSize: r.size("buffer_size"), CacheMaxSize: r.size("vfs_cache_max_size"), CacheMaxAge: r.age("vfs_cache_max_age"),
		ReadAhead: r.size("vfs_read_ahead"), ReadChunkSize: r.size("vfs_read_chunk_size"), ReadChunkStreams: r.count("vfs_read_chunk_streams"), WriteBack: r.age("vfs_write_back"),
	}
	readOnly, _ = keys["read_only"].(bool)
	return cfg, readOnly, r.err
}

// A reader reads the keys of config.mount_cached as rclone does. The first error stays.
type reader struct {
	keys map[string]any
	err  error
}

func (r *reader) text(key string) string {
	if r.keys[key] == nil {
		return ""
	}
	return fmt.Sprint(r.keys[key])
}

func (r *reader) fail(key string, err error) {
	if r.err == nil {
		r.err = &api.Error{Type: api.ErrStorageSpec, Message: fmt.Sprintf("config.mount_cached.%s: %v", key, err)}
	}
}

func (r *reader) count(key string) int {
	text := r.text(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n != float64(int(n)) {
		r.fail(key, fmt.Errorf("%q is no number of things", text))
	}
	return int(n)
}

// size is a number of bytes; without a unit it is in KiB.
func (r *reader) size(key string) int64 {
	text := r.text(key)
	if text == "" {
		return 0
	}
	digits := strings.TrimRight(text, "bkmgtpBKMGTP")
	unit := strings.ToLower(text[len(digits):])
	shift := map[string]int{"": 10, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
	by, ok := shift[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !ok || n < 0 || n*float64(uint64(1)<<by) >= 1<<62 {
		r.fail(key, fmt.Errorf(`%q is no size such as "512M" or "10G"`, text))
		return 0
	}
	return int64(n * float64(uint64(1)<<by))
}

// age is a time; without a unit it is in seconds.
func (r *reader) age(key string) time.Duration {
	text := r.text(key)
	if text == "" {
		return 0
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e9 {
		return time.Duration(n * float64(time.Second))
	}
	const day = 24 * time.Hour
	units := []struct {
		name string
		is   time.Duration
	}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", day}, {"w", 7 * day}, {"M", 30 * day}, {"y", 365 * day}}
	total := time.Duration(0)
	for rest := text; rest != ""; {
		i := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
		if i <= 0 {
			r.fail(key, fmt.Errorf(`%q is no time such as "30s" or "1h30m"`, text))
			return 0
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		rest = rest[i:]
		found := false
		for _, u := range units {
			if after, ok := strings.CutPrefix(rest, u.name); ok && err == nil {
				total, rest, found = total+time.Duration(n*float64(u.is)), after, true
				break
			}
		}
		if !found || total < 0 {
			r.fail(key, fmt.Errorf(`%q is no time such as "30s" or "1h30m"`, text))
			return 0
		}
	}
	return total
}
