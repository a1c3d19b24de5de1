package memory

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// ServeS3 answers as S3 does, with the buckets in the path, to requests that
// carry the access key. Signatures are not compared; checksums are.
func (s *Store) ServeS3(accessKey string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call{store: s, w: w, r: r, q: r.URL.Query()}
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+accessKey+"/") {
			c.fail(refusal{http.StatusForbidden, "InvalidAccessKeyId"})
			return
		}
		bucket, key, inside := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		c.bucket, c.key = s.Bucket(bucket), key
		var err error
		if inside && key != "" {
			err = c.object()
		} else {
			err = c.wholeBucket()
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// A refusal is an error of the API itself.
type refusal struct {
	status int
	code   string
}

func (r refusal) Error() string { return r.code }

var (
	notImplemented = refusal{http.StatusNotImplemented, "NotImplemented"}
	badDigest      = refusal{http.StatusBadRequest, "BadDigest"}
	malformed      = refusal{http.StatusBadRequest, "MalformedXML"}
)

type call struct {
	store  *Store
	bucket *Bucket
	key    string
	w      http.ResponseWriter
	r      *http.Request
	q      url.Values
}

func (c call) fail(err error) {
	ref, ok := err.(refusal)
	if !ok {
		ref = refused(err)
	}
	c.w.Header().Set("Content-Type", "application/xml")
	c.w.WriteHeader(ref.status)
	if c.r.Method != http.MethodHead {
		fmt.Fprintf(c.w, "%s<Error><Code>%s</Code><Message>", xml.Header, ref.code)
		xml.EscapeText(c.w, []byte(err.Error()))
		io.WriteString(c.w, "</Message></Error>")
	}
}

func refused(err error) refusal {
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok {
		switch {
		case missing.Upload != "":
			return refusal{http.StatusNotFound, "NoSuchUpload"}
		case missing.Key != "":
			return refusal{http.StatusNotFound, "NoSuchKey"}
		}
		return refusal{http.StatusNotFound, "NoSuchBucket"}
	}
	if _, ok := errors.AsType[*storage.ConflictError](err); ok {
		return refusal{http.StatusPreconditionFailed, "PreconditionFailed"}
	}
	if _, ok := errors.AsType[*storage.BucketNotEmptyError](err); ok {
		return refusal{http.StatusConflict, "BucketNotEmpty"}
	}
	if _, ok := errors.AsType[*storage.InvalidError](err); ok {
		return refusal{http.StatusBadRequest, "InvalidRequest"}
	}
	return refusal{http.StatusInternalServerError, "InternalError"}
}

func (c call) answer(v any) error {
	text, err := xml.Marshal(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/xml")
	io.WriteString(c.w, xml.Header)
	c.w.Write(text)
	return nil
}

// body reads a request's body and compares its checksums.
func (c call) body() ([]byte, error) {
	if strings.Contains(c.r.Header.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(c.r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return nil, notImplemented // as some stores of the family
	}
	data, err := io.ReadAll(c.r.Body)
	if err != nil {
		return nil, err
	}
	if want := c.r.Header.Get("X-Amz-Checksum-Crc32"); want != "" {
		sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data))
		if base64.StdEncoding.EncodeToString(sum) != want {
			return nil, badDigest
		}
	}
	if want := c.r.Header.Get("Content-Md5"); want != "" {
		sum := md5.Sum(data)
		if base64.StdEncoding.EncodeToString(sum[:]) != want {
			return nil, badDigest
		}
	}
	return data, nil
}

func (c call) read(v any) error {
	data, err := c.body()
	if err != nil {
		return err
	}
	if xml.Unmarshal(data, v) != nil {
		return malformed
	}
	return nil
}

type tagging struct {
	XMLName xml.Name `xml:"Tagging"`
	Tags    []struct {
		Key, Value string
	} `xml:"TagSet>Tag"`
}

func (c call) wholeBucket() error {
	ctx := c.r.Context()
	switch {
	case c.q.Has("tagging"):
		return c.tagging()
	case c.q.Has("versions"):
		return c.versions()
	case c.q.Has("uploads"):
		return c.uploads()
	case c.q.Has("delete") && c.r.Method == http.MethodPost:
		return c.remove()
	}
	switch c.r.Method {
	case http.MethodHead:
		info, err := c.bucket.Head(ctx)
		c.w.Header().Set("X-Amz-Bucket-Region", info.Region)
		return err
	case http.MethodPut:
		if _, err := c.bucket.Head(ctx); err == nil {
			return refusal{http.StatusConflict, "BucketAlreadyOwnedByYou"}
		}
		return c.bucket.Create(ctx, nil)
	case http.MethodDelete:
		if _, err := c.bucket.Head(ctx); err != nil {
			return err
		}
		if err := c.bucket.Delete(ctx); err != nil {
			return err
		}
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodGet:
		if c.q.Get("list-type") == "2" {
			return c.list()
		}
	}
	return notImplemented
}

func (c call) tagging() error {
	ctx := c.r.Context()
	switch c.r.Method {
	case http.MethodGet:
		tags, err := c.bucket.Tags(ctx)
		if err != nil {
			return err
		}
		if len(tags) == 0 {
			return refusal{http.StatusNotFound, "NoSuchTagSet"}
		}
		var t tagging
		for k, v := range tags {
			t.Tags = append(t.Tags, struct{ Key, Value string }{k, v})
		}
		return c.answer(t)
	case http.MethodPut:
		var t tagging
		if err := c.read(&t); err != nil {
			return err
		}
		tags := map[string]string{}
		for _, x := range t.Tags {
			tags[x.Key] = x.Value
		}
		return c.bucket.SetTags(ctx, tags)
	}
	c.w.WriteHeader(http.StatusNoContent)
	return c.bucket.SetTags(ctx, nil)
}

// options of a list; its keys are encoded if the caller wants that.
func (c call) options() storage.ListOptions {
	number, _ := strconv.Atoi(c.q.Get("max-keys"))
	return storage.ListOptions{Prefix: c.q.Get("prefix"), Delimiter: c.q.Get("delimiter"), Token: c.q.Get("continuation-token"), After: c.q.Get("start-after"), Max: number}
}

func (c call) encoded(s string) string {
	if c.q.Get("encoding-type") == "url" {
		return url.QueryEscape(s)
	}
	return s
}

type xmlObject struct {
	Key, LastModified, ETag string
	Size                    int64
	VersionID               string `xml:"VersionId,omitempty"`
	IsLatest                string `xml:",omitempty"`
}

func (c call) describe(o storage.Object) xmlObject {
	return xmlObject{Key: c.encoded(o.Key), LastModified: o.Modified.UTC().Format(time.RFC3339Nano), ETag: `"` + o.ETag + `"`, Size: o.Size}
}

type xmlPrefix struct{ Prefix string }

func (c call) list() error {
	page, err := c.bucket.List(c.r.Context(), c.options())
	if err != nil {
		return err
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string   `xml:",omitempty"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []xmlObject
		CommonPrefixes        []xmlPrefix
	}
	out.EncodingType, out.IsTruncated, out.NextContinuationToken = c.q.Get("encoding-type"), page.Next != "", page.Next
	for _, o := range page.Objects {
		out.Contents = append(out.Contents, c.describe(o))
	}
	for _, p := range page.Prefixes {
		out.CommonPrefixes = append(out.CommonPrefixes, xmlPrefix{c.encoded(p)})
	}
	return c.answer(out)
}

func (c call) versions() error {
	o := c.options()
	if key := c.q.Get("key-marker"); key != "" {
		o.Token = key + "\x00" + c.q.Get("version-id-marker")
	}
	page, err := c.bucket.Versions(c.r.Context(), o)
	if err != nil {
		return err
	}
	var out struct {
		XMLName                            xml.Name `xml:"ListVersionsResult"`
		EncodingType                       string   `xml:",omitempty"`
		IsTruncated                        bool
		NextKeyMarker, NextVersionIdMarker string
		Version, DeleteMarker              []xmlObject
	}
	out.EncodingType, out.IsTruncated = c.q.Get("encoding-type"), page.Next != ""
	key, version, _ := strings.Cut(page.Next, "\x00")
	out.NextKeyMarker, out.NextVersionIdMarker = c.encoded(key), version
	for _, o := range page.Objects {
		x := c.describe(o)
		x.VersionID, x.IsLatest = o.Version, strconv.FormatBool(!o.Old)
		if o.DeleteMarker {
			out.DeleteMarker = append(out.DeleteMarker, x)
		} else {
			out.Version = append(out.Version, x)
		}
	}
	return c.answer(out)
}

func (c call) uploads() error {
	page, err := c.bucket.Uploads(c.r.Context(), storage.ListOptions{Prefix: c.q.Get("prefix"), Token: c.q.Get("upload-id-marker")})
	if err != nil {
		return err
	}
	type upload struct {
		Key, Initiated string
		UploadID       string `xml:"UploadId"`
	}
	var out struct {
		XMLName                           xml.Name `xml:"ListMultipartUploadsResult"`
		EncodingType                      string   `xml:",omitempty"`
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string
		Upload                            []upload
	}
	out.EncodingType, out.IsTruncated, out.NextUploadIdMarker = c.q.Get("encoding-type"), page.Next != "", page.Next
	for _, u := range page.Uploads {
		out.Upload = append(out.Upload, upload{Key: c.encoded(u.Key), UploadID: u.ID, Initiated: u.Started.UTC().Format(time.RFC3339Nano)})
	}
	return c.answer(out)
}

func (c call) remove() error {
	var in struct {
		Object []struct {
			Key       string
			VersionID string `xml:"VersionId"`
		}
	}
	if c.r.Header.Get("Content-Md5") == "" && c.r.Header.Get("X-Amz-Checksum-Crc32") == "" {
		return refusal{http.StatusBadRequest, "InvalidRequest"} // it must have a checksum
	}
	if err := c.read(&in); err != nil {
		return err
	}
	var ids []storage.ID
	for _, o := range in.Object {
		ids = append(ids, storage.ID{Key: o.Key, Version: o.VersionID})
	}
	if err := c.bucket.Remove(c.r.Context(), ids); err != nil {
		return err
	}
	return c.answer(struct {
		XMLName xml.Name `xml:"DeleteResult"`
	}{})
}

// put are the options that a request's headers hold.
func (c call) put() storage.PutOptions {
	o := storage.PutOptions{Metadata: map[string]string{}, ContentType: c.r.Header.Get("Content-Type")}
	for k, v := range c.r.Header {
		name, ok := strings.CutPrefix(strings.ToLower(k), "x-amz-meta-")
		if !ok {
			name, ok = strings.CutPrefix(strings.ToLower(k), "x-goog-meta-")
		}
		if ok {
			o.Metadata[name] = strings.Join(v, ",")
		}
	}
	o.IfAbsent = c.r.Header.Get("If-None-Match") == "*"
	o.IfMatch = strings.Trim(c.r.Header.Get("If-Match"), `"`)
	return o
}

// from is the object that a request copies.
func (c call) from() (src storage.Source, ok bool, err error) {
	header := c.r.Header.Get("X-Amz-Copy-Source")
	if header == "" {
		return src, false, nil
	}
	path, version, _ := strings.Cut(header, "?versionId=")
	path, err = url.PathUnescape(strings.TrimPrefix(path, "/"))
	if err != nil {
		return src, true, malformed
	}
	bucket, key, _ := strings.Cut(path, "/")
	return storage.Source{
		Bucket: c.store.Bucket(bucket), ID: storage.ID{Key: key, Version: version},
		ETag: strings.Trim(c.r.Header.Get("X-Amz-Copy-Source-If-Match"), `"`),
	}, true, nil
}

func (c call) object() error {
	ctx := c.r.Context()
	u := storage.Upload{Key: c.key, ID: c.q.Get("uploadId")}
	switch {
	case c.r.Method == http.MethodPost && c.q.Has("uploads"):
		o := c.put()
		o.Copied = c.r.Header.Get("X-Amz-Checksum-Algorithm") == ""
		u, err := c.bucket.Start(ctx, c.key, o)
		if err != nil {
			return err
		}
		return c.answer(struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadID string   `xml:"UploadId"`
		}{UploadID: u.ID})
	case c.r.Method == http.MethodPost && u.ID != "":
		return c.complete(u)
	case c.r.Method == http.MethodPut && u.ID != "":
		return c.part(u)
	case c.r.Method == http.MethodGet && u.ID != "":
		return c.parts(u)
	case c.r.Method == http.MethodDelete && u.ID != "":
		if _, err := c.bucket.Parts(ctx, u); err != nil {
			return err
		}
		c.w.WriteHeader(http.StatusNoContent)
		return c.bucket.Abort(ctx, u)
	case c.r.Method == http.MethodPut:
		return c.write()
	case c.r.Method == http.MethodGet, c.r.Method == http.MethodHead:
		return c.get()
	case c.r.Method == http.MethodDelete:
		err := c.bucket.Remove(ctx, []storage.ID{{Key: c.key, Version: c.q.Get("versionId")}})
		if err == nil {
			c.w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	return notImplemented
}

type xmlCopy struct {
	XMLName            xml.Name
	ETag, LastModified string
}

func (c call) write() error {
	o := c.put()
	src, copies, err := c.from()
	if err != nil {
		return err
	}
	if copies {
		if c.r.Header.Get("X-Amz-Metadata-Directive") != "REPLACE" {
			o.Metadata = nil
		}
		x, err := c.bucket.Copy(c.r.Context(), c.key, src, o)
		if err != nil {
			return err
		}
		return c.answer(xmlCopy{xml.Name{Local: "CopyObjectResult"}, `"` + x.ETag + `"`, x.Modified.UTC().Format(time.RFC3339Nano)})
	}
	data, err := c.body()
	if err != nil {
		return err
	}
	x, err := c.bucket.Put(c.r.Context(), c.key, strings.NewReader(string(data)), o)
	c.describeIn(x)
	return err
}

// describeIn writes headers about an object.
func (c call) describeIn(o storage.Object) {
	h := c.w.Header()
	h.Set("ETag", `"`+o.ETag+`"`)
	if o.Version != "" {
		h.Set("X-Amz-Version-Id", o.Version)
	}
	if !o.Modified.IsZero() {
		h.Set("Last-Modified", o.Modified.UTC().Format(http.TimeFormat))
	}
}

func (c call) get() error {
	g := storage.GetOptions{IfMatch: strings.Trim(c.r.Header.Get("If-Match"), `"`), Version: c.q.Get("versionId")}
	ranged := c.r.Header.Get("Range")
	if ranged != "" {
		var last int64
		if n, _ := fmt.Sscanf(ranged, "bytes=%d-%d", &g.Offset, &last); n == 2 {
			g.Length = last - g.Offset + 1
		}
	}
	r, err := c.bucket.Get(c.r.Context(), c.key, g)
	if _, ok := errors.AsType[*storage.InvalidError](err); ok {
		return refusal{http.StatusRequestedRangeNotSatisfiable, "InvalidRange"}
	}
	if err != nil {
		return err
	}
	defer r.Close()
	length := r.Object.Size
	h := c.w.Header()
	for k, v := range r.Object.Metadata {
		h.Set("X-Amz-Meta-"+k, v)
	}
	c.describeIn(r.Object)
	status := http.StatusOK
	if ranged != "" {
		length = r.Object.Size - g.Offset
		if g.Length > 0 {
			length = min(length, g.Length)
		}
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", g.Offset, g.Offset+length-1, r.Object.Size))
	}
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		io.Copy(c.w, r)
	}
	return nil
}

func (c call) part(u storage.Upload) error {
	n, err := strconv.Atoi(c.q.Get("partNumber"))
	if err != nil {
		return malformed
	}
	src, copies, err := c.from()
	if err != nil {
		return err
	}
	if copies {
		var first, last int64
		if _, err := fmt.Sscanf(c.r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &first, &last); err != nil {
			return malformed
		}
		p, err := c.bucket.CopyPart(c.r.Context(), u, n, src, first, last-first+1)
		if err != nil {
			return err
		}
		return c.answer(xmlCopy{xml.Name{Local: "CopyPartResult"}, `"` + p.ETag + `"`, time.Now().UTC().Format(time.RFC3339Nano)})
	}
	data, err := c.body()
	if err != nil {
		return err
	}
	p, err := c.bucket.PutPart(c.r.Context(), u, n, strings.NewReader(string(data)))
	c.w.Header().Set("ETag", `"`+p.ETag+`"`)
	return err
}

type xmlPart struct {
	PartNumber int
	ETag       string
	Size       int64
}

// partsPage is small, so that there is more than one page.
const partsPage = 2

func (c call) parts(u storage.Upload) error {
	parts, err := c.bucket.Parts(c.r.Context(), u)
	if err != nil {
		return err
	}
	after, _ := strconv.Atoi(c.q.Get("part-number-marker"))
	parts = slices.DeleteFunc(parts, func(p storage.Part) bool { return p.Number <= after })
	var out struct {
		XMLName              xml.Name `xml:"ListPartsResult"`
		IsTruncated          bool
		NextPartNumberMarker int
		Part                 []xmlPart
	}
	for i, p := range parts {
		if i == partsPage {
			out.IsTruncated = true
			break
		}
		out.Part = append(out.Part, xmlPart{p.Number, `"` + p.ETag + `"`, p.Size})
		out.NextPartNumberMarker = p.Number
	}
	return c.answer(out)
}

func (c call) complete(u storage.Upload) error {
	var in struct{ Part []xmlPart }
	if err := c.read(&in); err != nil {
		return err
	}
	var parts []storage.Part
	for _, p := range in.Part {
		parts = append(parts, storage.Part{Number: p.PartNumber, ETag: strings.Trim(p.ETag, `"`)})
	}
	o := c.put()
	x, err := c.bucket.Complete(c.r.Context(), u, parts, o)
	if err != nil {
		return err
	}
	return c.answer(struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}{ETag: `"` + x.ETag + `"`})
}
