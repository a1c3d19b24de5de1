package gcs

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Multipart uploads are those of the XML API.

func (b *Bucket) uploadCall(method string, u storage.Upload, permission string) rest.Call {
	return rest.Call{Method: method, Path: b.xmlPath(u.Key), Key: u.Key, Upload: u.ID, Permission: permission, Query: url.Values{"uploadId": {u.ID}}}
}

// Start begins a multipart upload.
func (b *Bucket) Start(ctx context.Context, key string, p storage.PutOptions) (storage.Upload, error) {
	if p.IfMatch != "" || p.IfAbsent {
		return storage.Upload{}, &storage.UnsupportedError{Store: storage.GCS, Op: "complete uploads on a condition"}
	}
	if err := b.checkKey(key); err != nil {
		return storage.Upload{}, err
	}
	h := http.Header{}
	for k, v := range p.Metadata {
		h.Set("X-Goog-Meta-"+k, v)
	}
	if p.ContentType != "" {
		h.Set("Content-Type", p.ContentType)
	}
	var out struct {
		UploadID string `xml:"UploadId"`
	}
	err := b.XML(ctx, rest.Call{
		Method: http.MethodPost, Path: b.xmlPath(key), Query: url.Values{"uploads": {""}}, Header: h, Permission: "storage.multipartUploads.create",
		Body: func() io.Reader { return nil },
	}, &out)
	if err == nil && out.UploadID == "" {
		err = b.Broken(ctx, errors.New("the upload that began has no id"))
	}
	return storage.Upload{Key: key, ID: out.UploadID}, err
}

// PutPart uploads a part.
func (b *Bucket) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	size, crc, err := sum(body)
	if err != nil {
		return storage.Part{}, err
	}
	c := b.uploadCall(http.MethodPut, u, "storage.multipartUploads.create")
	c.Query.Set("partNumber", strconv.Itoa(n))
	c.Header = http.Header{"X-Goog-Hash": {"crc32c=" + crc}}
	c.Body, c.Length = func() io.Reader { return rest.Rewound(body) }, size
	answer, err := b.Send(ctx, c)
	if err != nil {
		return storage.Part{}, err
	}
	answer.Body.Close()
	return storage.Part{Number: n, Size: size, ETag: strings.Trim(answer.Header.Get("ETag"), `"`)}, nil
}

type xmlPart struct {
	XMLName    xml.Name `xml:"Part"`
	PartNumber int
	ETag       string
	Size       int64 `xml:",omitempty"`
}

// Parts lists the parts of an upload.
func (b *Bucket) Parts(ctx context.Context, u storage.Upload) ([]storage.Part, error) {
	var parts []storage.Part
	c := b.uploadCall(http.MethodGet, u, "storage.multipartUploads.listParts")
	for {
		var out struct {
			IsTruncated          bool
			NextPartNumberMarker string
			Part                 []xmlPart
		}
		if err := b.XML(ctx, c, &out); err != nil {
			return nil, err
		}
		for _, p := range out.Part {
			parts = append(parts, storage.Part{Number: p.PartNumber, Size: p.Size, ETag: strings.Trim(p.ETag, `"`)})
		}
		if !out.IsTruncated || out.NextPartNumberMarker == "" || out.NextPartNumberMarker == c.Query.Get("part-number-marker") {
			return parts, nil
		}
		c.Query.Set("part-number-marker", out.NextPartNumberMarker)
	}
}

// Complete makes the object of its parts.
func (b *Bucket) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, _ storage.PutOptions) (storage.Object, error) {
	var in struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []xmlPart
	}
	for _, p := range parts {
		in.Part = append(in.Part, xmlPart{PartNumber: p.Number, ETag: `"` + p.ETag + `"`})
	}
	text, err := xml.Marshal(in)
	if err != nil {
		return storage.Object{}, err
	}
	c := b.uploadCall(http.MethodPost, u, "storage.objects.create")
	c.Body, c.Length = func() io.Reader { return bytes.NewReader(text) }, int64(len(text))
	if err := b.XML(ctx, c, nil); err != nil {
		return storage.Object{}, err
	}
	// The answer does not say which generation it is.
	return b.Stat(ctx, u.Key)
}

// Abort ends an upload.
func (b *Bucket) Abort(ctx context.Context, u storage.Upload) error {
	err := b.XML(ctx, b.uploadCall(http.MethodDelete, u, "storage.multipartUploads.abort"), nil)
	if _, gone := errors.AsType[*storage.NotFoundError](err); gone {
		return nil
	}
	return err
}

// A mark is where a list of uploads goes on.
type mark struct {
	Key string `json:"k"`
	ID  string `json:"i"`
}

// Uploads lists unfinished uploads.
func (b *Bucket) Uploads(ctx context.Context, o storage.ListOptions) (storage.UploadPage, error) {
	q := url.Values{"uploads": {""}, "encoding-type": {"url"}}
	if o.Prefix != "" {
		q.Set("prefix", o.Prefix)
	}
	if o.Token != "" {
		var from mark
		if err := json.Unmarshal([]byte(o.Token), &from); err != nil {
			return storage.UploadPage{}, &storage.InvalidError{Bucket: b.At, Err: err}
		}
		q.Set("key-marker", from.Key)
		q.Set("upload-id-marker", from.ID)
	}
	var out struct {
		EncodingType                      string
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string
		Upload                            []struct {
			Key       string
			UploadID  string `xml:"UploadId"`
			Initiated time.Time
		}
	}
	if err := b.XML(ctx, rest.Call{Method: http.MethodGet, Path: b.xmlPath(""), Query: q, Permission: "storage.multipartUploads.list"}, &out); err != nil {
		return storage.UploadPage{}, err
	}
	plain := func(key string) (string, error) {
		if out.EncodingType != "url" {
			return key, nil
		}
		return url.QueryUnescape(key)
	}
	var p storage.UploadPage
	for _, u := range out.Upload {
		key, err := plain(u.Key)
		if err != nil {
			return p, b.Broken(ctx, err)
		}
		p.Uploads = append(p.Uploads, storage.Upload{Key: key, ID: u.UploadID, Started: u.Initiated})
	}
	if out.IsTruncated {
		key, err := plain(out.NextKeyMarker)
		if err != nil {
			return p, b.Broken(ctx, err)
		}
		token, err := json.Marshal(mark{key, out.NextUploadIdMarker})
		p.Next = string(token)
		return p, err
	}
	return p, nil
}
