package storage

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Attributes are what an object keeps of the file it was made from, as metadata.
// The names and the form of the first two are those of rclone, which reads and
// writes them, too.
type Attributes struct {
	ModTime time.Time   // zero: unknown
	Mode    fs.FileMode // permission bits; 0: unknown
	Link    string      // target, if the object stands for a symbolic link
	Hash    string      // of the content, as transfer makes it
	CRC     string      // CRC-32C of the content in hexadecimal digits: quicker to compare than Hash
	Source  string      // what it was copied from, where there is no hash: an ETag
}

const (
	attrModTime = "mtime"   // seconds since 1970 with up to nine decimals
	attrMode    = "mode"    // octal, with a leading 0
	attrLink    = "skylink" // percent-encoded
	attrHash    = "skyhash"
	attrCRC     = "skycrc"
	attrSource  = "skysource"
)

// Metadata is how the attributes are stored, with other metadata that is kept.
func (a Attributes) Metadata(other map[string]string) map[string]string {
	m := maps.Clone(other)
	if m == nil {
		m = map[string]string{}
	}
	for _, name := range []string{attrModTime, attrMode, attrLink, attrHash, attrCRC, attrSource} {
		delete(m, name)
	}
	if !a.ModTime.IsZero() {
		m[attrModTime] = formatTime(a.ModTime)
	}
	if a.Mode.Perm() != 0 {
		m[attrMode] = fmt.Sprintf("0%o", a.Mode.Perm())
	}
	if a.Link != "" {
		m[attrLink] = url.PathEscape(a.Link)
	}
	if a.Hash != "" {
		m[attrHash] = a.Hash
	}
	if a.CRC != "" {
		m[attrCRC] = a.CRC
	}
	if a.Source != "" {
		m[attrSource] = a.Source
	}
	return m
}

// AttributesOf reads the attributes from an object's metadata. What cannot be
// read counts as unknown: anybody may have written it.
func AttributesOf(metadata map[string]string) Attributes {
	a := Attributes{ModTime: parseTime(metadata[attrModTime]), Hash: metadata[attrHash], CRC: metadata[attrCRC], Source: metadata[attrSource]}
	if text := metadata[attrMode]; strings.HasPrefix(text, "0") {
		if mode, err := strconv.ParseUint(text, 8, 32); err == nil {
			a.Mode = fs.FileMode(mode) & fs.ModePerm
		}
	}
	if target, err := url.PathUnescape(metadata[attrLink]); err == nil {
		a.Link = target
	}
	return a
}

func formatTime(t time.Time) string {
	sec, nsec := t.Unix(), t.Nanosecond()
	sign := ""
	if sec < 0 { // the decimals count away from zero
		sign = "-"
		sec = -sec
		if nsec > 0 {
			sec, nsec = sec-1, 1e9-nsec
		}
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, sec, nsec), "0"), ".")
}

func parseTime(text string) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t
	}
	digits, negative := strings.CutPrefix(text, "-")
	whole, part, _ := strings.Cut(digits, ".")
	sec, err := strconv.ParseUint(whole, 10, 62)
	if err != nil || len(part) > 9 {
		return time.Time{}
	}
	nsec, err := strconv.ParseUint(part+strings.Repeat("0", 9-len(part)), 10, 62)
	if err != nil {
		return time.Time{}
	}
	if negative {
		return time.Unix(-int64(sec), -int64(nsec))
	}
	return time.Unix(int64(sec), int64(nsec))
}
