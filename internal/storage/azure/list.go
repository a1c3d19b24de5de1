package azure

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
)

// A name may be percent-encoded, as XML has not all characters.
type xmlName struct {
	Text    string `xml:",chardata"`
	Encoded bool   `xml:"Encoded,attr"`
}

func (n xmlName) plain() (string, error) {
	if !n.Encoded {
		return n.Text, nil
	}
	return url.PathUnescape(n.Text)
}

type xmlMetadata map[string]string

func (m *xmlMetadata) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	*m = xmlMetadata{}
	for {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			var value string
			if err := d.DecodeElement(&value, &t); err != nil {
				return err
			}
			(*m)[plainName(strings.ToLower(t.Name.Local))] = value
		case xml.EndElement:
			return nil
		}
	}
}

type xmlBlob struct {
	Name             xmlName
	VersionID        string `xml:"VersionId"`
	IsCurrentVersion bool
	Deleted          bool
	Snapshot         string
	Properties       struct {
		LastModified  string `xml:"Last-Modified"`
		Etag          string
		ContentLength int64  `xml:"Content-Length"`
		ContentMD5    string `xml:"Content-MD5"`
	}
	Metadata xmlMetadata
}

// List lists blobs.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return b.list(ctx, o, "metadata")
}

// Versions lists blobs and their versions.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	return b.list(ctx, o, "versions")
}

func (b *Bucket) list(ctx context.Context, o storage.ListOptions, include string) (storage.Page, error) {
	c := b.container(http.MethodGet, reader, "comp", "list", "include", include)
	for name, value := range map[string]string{"prefix": o.Prefix, "delimiter": o.Delimiter, "marker": o.Token} {
		if value != "" {
			c.Query.Set(name, value)
		}
	}
	if o.Max > 0 {
		c.Query.Set("maxresults", strconv.Itoa(o.Max))
	}
	var out struct {
		Blobs struct {
			Blob       []xmlBlob
			BlobPrefix []struct{ Name xmlName }
		}
		NextMarker string
	}
	if err := b.XML(ctx, c, &out); err != nil {
		return storage.Page{}, err
	}
	p := storage.Page{Next: out.NextMarker, Objects: make([]storage.Object, 0, len(out.Blobs.Blob))}
	for i := range out.Blobs.Blob {
		x := &out.Blobs.Blob[i]
		key, err := x.Name.plain()
		if err != nil {
			return p, b.Broken(ctx, err)
		}
		o := storage.Object{
			Key: key, Size: x.Properties.ContentLength, ETag: strings.Trim(x.Properties.Etag, `"`), Modified: parseTime(x.Properties.LastModified), Version: x.VersionID,
			Old: x.VersionID != "" && !x.IsCurrentVersion,
		}
		if include == "metadata" {
			if o.Metadata = x.Metadata; o.Metadata == nil {
				o.Metadata = map[string]string{}
			}
		}
		if sum, err := base64.StdEncoding.DecodeString(x.Properties.ContentMD5); err == nil && len(sum) == md5.Size {
			o.MD5 = sum
		}
		p.Objects = append(p.Objects, o)
	}
	for _, x := range out.Blobs.BlobPrefix {
		prefix, err := x.Name.plain()
		if err != nil {
			return p, b.Broken(ctx, err)
		}
		p.Prefixes = append(p.Prefixes, prefix)
	}
	return p, nil
}
