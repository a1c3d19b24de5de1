package storage

import (
	"io/fs"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAttributesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Attributes{
			ModTime: time.Unix(rapid.Int64Range(-1<<33, 1<<34).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")),
			Mode:    fs.FileMode(rapid.IntRange(0, 0o777).Draw(t, "mode")),
			Link:    rapid.String().Draw(t, "link"),
			Hash:    rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(t, "hash"),
		}
		m := a.Metadata(map[string]string{"mine": "kept", attrHash: "old"})
		for k, v := range m {
			for _, r := range v {
				if r < 0x20 || r > 0x7e {
					t.Errorf("%s is %q: no header can carry it", k, v)
				}
			}
		}
		if m["mine"] != "kept" {
			t.Errorf("other metadata is %q", m["mine"])
		}
		got := AttributesOf(m)
		if !got.ModTime.Equal(a.ModTime) || got.Mode != a.Mode || got.Link != a.Link || got.Hash != a.Hash {
			t.Errorf("%+v became %+v by %v", a, got, m)
		}
	})
}

// Others write these, too, in their own ways.
func TestForeignAttributes(t *testing.T) {
	for _, c := range []struct {
		name  string
		given map[string]string
		want  Attributes
	}{
		{"none", nil, Attributes{}},
		{"rclone on S3", map[string]string{"mtime": "1354040105.123456789"}, Attributes{ModTime: time.Unix(1354040105, 123456789)}},
		{"fewer decimals", map[string]string{"mtime": "1354040105.5"}, Attributes{ModTime: time.Unix(1354040105, 500000000)}},
		{"rclone elsewhere", map[string]string{"mtime": "2012-11-27T18:15:05.123456789Z"}, Attributes{ModTime: time.Unix(1354040105, 123456789)}},
		{"rclone's mode, with the kind of file", map[string]string{"mode": "0100755"}, Attributes{Mode: 0o755}},
		{"a decimal mode is not guessed", map[string]string{"mode": "33188"}, Attributes{}},
		{"setuid does not travel", map[string]string{"mode": "0104755"}, Attributes{Mode: 0o755}},
		{"nonsense", map[string]string{"mtime": "x", "mode": "0zz", "skylink": "%zz"}, Attributes{}},
		{"times beyond all", map[string]string{"mtime": "99999999999999999999"}, Attributes{}},
	} {
		got := AttributesOf(c.given)
		if !got.ModTime.Equal(c.want.ModTime) || got.Mode != c.want.Mode || got.Link != c.want.Link || got.Hash != c.want.Hash {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
