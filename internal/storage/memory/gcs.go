package memory

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// ServeGCS answers as Google Cloud Storage does, by its JSON API, and by its XML API for
// content and multipart uploads, to requests that carry the token.
func (s *Store) ServeGCS(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := gcsCall{call{store: s, w: w, r: r, q: r.URL.Query()}}
		if r.Header.Get("Authorization") != "Bearer "+token {
			c.failJSON(refusal{http.StatusUnauthorized, "authError"})
			return
		}
		path := r.URL.EscapedPath()
		var err error
		if rest, ok := strings.CutPrefix(path, "/storage/v1/b"); ok {
			err = c.json(strings.TrimPrefix(rest, "/"))
		} else if rest, ok := strings.CutPrefix(path, "/upload/storage/v1/b/"); ok {
			c.bucket = s.Bucket(strings.TrimSuffix(rest, "/o"))
			err = c.insert()
		} else if path == "/batch/storage/v1" {
			err = c.batch(s.ServeGCS(token))
		} else {
			c.xml(path)
			return
		}
		if err != nil {
			c.failJSON(err)
		}
	})
}

type gcsCall struct{ call }

var errNoGeneration = refusal{http.StatusBadRequest, "invalid"}

// failJSON answers with an error.
func (c gcsCall) failJSON(err error) {
	r, ok := err.(refusal)
	message := err.Error()
	if !ok {
		r = refused(err)
		switch r.code {
		case "NoSuchBucket":
			message = "The specified bucket does not exist."
		case "NoSuchKey":
			message = "No such object: somewhere"
		case "BucketNotEmpty":
			message = "The bucket you tried to delete is not empty."
		}
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(r.status)
	json.NewEncoder(c.w).Encode(map[string]any{"error": map[string]any{"code": r.status, "message": message, "errors": []any{map[string]any{"reason": r.code, "message": message}}}})
}

func (c gcsCall) answerJSON(v any) error {
	c.w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(c.w).Encode(v)
}

// json serves what is below /storage/v1/b/.
func (c gcsCall) json(path string) error {
	ctx := c.r.Context()
	if path == "" && c.r.Method == http.MethodPost {
		var in struct {
			Name   string
			Labels map[string]string
		}
		if json.NewDecoder(c.r.Body).Decode(&in) != nil || c.q.Get("project") == "" {
			return errNoGeneration
		}
		c.bucket = c.store.Bucket(in.Name)
		if _, err := c.bucket.Head(ctx); err == nil {
			return refusal{http.StatusConflict, "conflict"}
		}
		return c.bucket.Create(ctx, in.Labels)
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return errNoGeneration
		}
	}
	c.bucket = c.store.Bucket(parts[0])
	switch {
	case len(parts) == 1:
		return c.bucketItself()
	case len(parts) == 2 && parts[1] == "o":
		return c.listJSON()
	case len(parts) == 3:
		c.key = parts[2]
		return c.objectItself()
	case len(parts) == 8 && parts[3] == "rewriteTo":
		c.key = parts[2]
		return c.rewrite(parts[5], parts[7])
	}
	return notImplemented
}

func (c gcsCall) bucketItself() error {
	ctx := c.r.Context()
	switch c.r.Method {
	case http.MethodGet:
		info, err := c.bucket.Head(ctx)
		if err != nil {
			return err
		}
		tags, err := c.bucket.Tags(ctx)
		if err != nil {
			return err
		}
		return c.answerJSON(map[string]any{"location": strings.ToUpper(info.Region), "timeCreated": info.Created, "labels": tags})
	case http.MethodPatch:
		var in struct{ Labels map[string]*string }
		if json.NewDecoder(c.r.Body).Decode(&in) != nil {
			return errNoGeneration
		}
		tags, err := c.bucket.Tags(ctx)
		if err != nil {
			return err
		}
		for k, v := range in.Labels {
			if delete(tags, k); v != nil {
				tags[k] = *v
			}
		}
		return c.bucket.SetTags(ctx, tags)
	case http.MethodDelete:
		if _, err := c.bucket.Head(ctx); err != nil {
			return err
		}
		return c.bucket.Delete(ctx)
	}
	return notImplemented
}

// found is a version with what only Google's API says of it.
func (c gcsCall) found(o storage.Object) (out map[string]any) {
	c.bucket.use(c.r.Context(), func(x *bucket) error {
		for _, v := range x.objects[o.Key] {
			if v.DeleteMarker || o.Version != v.Version && (o.Version != "" || v != x.current(o.Key)) {
				continue
			}
			out = map[string]any{
				"name": o.Key, "size": strconv.FormatInt(v.Size, 10), "updated": v.Modified, "generation": v.generation, "metadata": v.Metadata,
			}
			if len(v.MD5) > 0 {
				out["md5Hash"] = base64.StdEncoding.EncodeToString(v.MD5)
			}
			if v != x.current(o.Key) {
				out["timeDeleted"] = v.deleted
			}
		}
		return nil
	})
	return out
}

func (c gcsCall) listJSON() error {
	most, _ := strconv.Atoi(c.q.Get("maxResults"))
	o := storage.ListOptions{Prefix: c.q.Get("prefix"), Delimiter: c.q.Get("delimiter"), Token: c.q.Get("pageToken"), After: c.q.Get("startOffset"), Max: most}
	list := c.bucket.List
	if c.q.Get("versions") == "true" {
		list = c.bucket.Versions
	}
	page, err := list(c.r.Context(), o)
	if err != nil {
		return err
	}
	items := []any{}
	if o.After != "" && strings.HasPrefix(o.After, o.Prefix) { // the list begins with this key itself
		if x, err := c.bucket.Stat(c.r.Context(), o.After); err == nil {
			items = append(items, c.found(x))
		}
	}
	for _, o := range page.Objects {
		if !o.DeleteMarker { // there are none here
			items = append(items, c.found(o))
		}
	}
	return c.answerJSON(map[string]any{"items": items, "prefixes": page.Prefixes, "nextPageToken": page.Next})
}

func (c gcsCall) objectItself() error {
	ctx := c.r.Context()
	switch c.r.Method {
	case http.MethodGet:
		o, err := c.bucket.Stat(ctx, c.key)
		if err != nil {
			return err
		}
		return c.answerJSON(c.found(o))
	case http.MethodDelete:
		if c.q.Get("generation") == "" {
			if _, err := c.bucket.Stat(ctx, c.key); err != nil {
				return err
			}
		}
		if err := c.bucket.Remove(ctx, []storage.ID{{Key: c.key, Version: c.q.Get("generation")}}); err != nil {
			return err
		}
		c.w.WriteHeader(http.StatusNoContent)
		return c.bucket.use(ctx, func(x *bucket) error {
			// A deletion leaves no trace once the versions are gone, too.
			if !slices.ContainsFunc(x.objects[c.key], func(v *version) bool { return !v.DeleteMarker }) {
				delete(x.objects, c.key)
				x.sorted = false
			}
			return nil
		})
	}
	return notImplemented
}

// conditionsJSON are those of a write.
func (c gcsCall) conditionsJSON(o *storage.PutOptions) error {
	g := c.q.Get("ifGenerationMatch")
	if g == "" {
		return nil
	}
	if _, err := strconv.ParseInt(g, 10, 64); err != nil {
		return errNoGeneration
	}
	if o.IfAbsent = g == "0"; !o.IfAbsent {
		o.IfMatch = g
	}
	return nil
}

// insert takes a description and content.
func (c gcsCall) insert() error {
	kind, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/related" || c.r.ContentLength < 0 {
		return errNoGeneration
	}
	parts := multipart.NewReader(c.r.Body, parameters["boundary"])
	head, err := parts.NextPart()
	if err != nil {
		return err
	}
	var in struct {
		Name, CRC32C, ContentType string
		Metadata                  map[string]string
	}
	if json.NewDecoder(head).Decode(&in) != nil {
		return errNoGeneration
	}
	body, err := parts.NextRawPart()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if in.CRC32C != crc32cOf(data) {
		return badDigest
	}
	o := storage.PutOptions{Metadata: in.Metadata, ContentType: in.ContentType}
	if err := c.conditionsJSON(&o); err != nil {
		return err
	}
	x, err := c.bucket.Put(c.r.Context(), in.Name, bytes.NewReader(data), o)
	if err != nil {
		return err
	}
	return c.answerJSON(c.found(x))
}

func crc32cOf(data []byte) string {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// rewrite copies, in two requests.
func (c gcsCall) rewrite(bucket, key string) error {
	if c.q.Get("rewriteToken") == "" {
		if _, err := c.bucket.Stat(c.r.Context(), c.key); err != nil {
			return err
		}
		return c.answerJSON(map[string]any{"done": false, "rewriteToken": "more"})
	}
	var in struct{ Metadata map[string]string }
	text, err := io.ReadAll(c.r.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return err
	}
	o := storage.PutOptions{Metadata: in.Metadata}
	if err := c.conditionsJSON(&o); err != nil {
		return err
	}
	to := c.store.Bucket(bucket)
	x, err := to.Copy(c.r.Context(), key, storage.Source{Bucket: c.bucket, ID: storage.ID{Key: c.key, Version: c.q.Get("sourceGeneration")}, ETag: c.q.Get("ifSourceGenerationMatch")}, o)
	if err != nil {
		return err
	}
	c.bucket = to
	return c.answerJSON(map[string]any{"done": true, "resource": c.found(x)})
}

// batch makes several calls.
func (c gcsCall) batch(all http.Handler) error {
	_, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil {
		return errNoGeneration
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for parts, n := multipart.NewReader(c.r.Body, parameters["boundary"]), 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil || n == 100 {
			return errNoGeneration
		}
		r, err := http.ReadRequest(bufio.NewReader(part))
		if err != nil {
			return errNoGeneration
		}
		r.Header.Set("Authorization", c.r.Header.Get("Authorization"))
		answer := httptest.NewRecorder()
		all.ServeHTTP(answer, r.WithContext(c.r.Context()))
		id := strings.Replace(part.Header.Get("Content-Id"), "<", "<response-", 1)
		out, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/http"}, "Content-Id": {id}})
		if err != nil {
			return err
		}
		answer.Result().Write(out)
	}
	w.Close()
	c.w.Header().Set("Content-Type", "multipart/mixed; boundary="+w.Boundary())
	_, err = c.w.Write(body.Bytes())
	return err
}

// xml serves the XML API, which is much like that of S3.
func (c gcsCall) xml(path string) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	key, err := url.PathUnescape(key)
	c.bucket, c.key = c.store.Bucket(bucket), key
	switch {
	case err != nil:
	case c.key == "":
		err = c.call.wholeBucket()
	case c.r.Method == http.MethodGet && !c.q.Has("uploadId"):
		err = c.content()
	default:
		if want := c.r.Header.Get("X-Goog-Hash"); want != "" {
			data, failed := io.ReadAll(c.r.Body)
			if failed != nil || want != "crc32c="+crc32cOf(data) {
				c.call.fail(badDigest)
				return
			}
			c.r.Body = io.NopCloser(bytes.NewReader(data))
		}
		err = c.call.object()
	}
	if err != nil {
		c.call.fail(err)
	}
}

// content answers with an object, its metadata and generation in headers.
func (c gcsCall) content() error {
	g := storage.GetOptions{Version: c.q.Get("generation"), IfMatch: c.r.Header.Get("X-Goog-If-Generation-Match")}
	if _, err := c.bucket.Get(c.r.Context(), c.key, storage.GetOptions{Version: g.Version}); err != nil {
		return err
	}
	var v version
	err := c.bucket.use(c.r.Context(), func(x *bucket) error {
		found, err := c.bucket.find(x, storage.ID{Key: c.key, Version: g.Version})
		if err == nil {
			v = *found
		}
		return err
	})
	if err != nil {
		return err
	}
	if g.IfMatch != "" && !v.is(g.IfMatch) {
		return refusal{http.StatusPreconditionFailed, "PreconditionFailed"}
	}
	h := c.w.Header()
	for k, value := range v.Metadata {
		h.Set("X-Goog-Meta-"+k, value)
	}
	h.Set("X-Goog-Generation", v.generation)
	h.Set("X-Goog-Hash", "crc32c="+crc32cOf(v.data)+",md5="+base64.StdEncoding.EncodeToString(v.MD5))
	h.Set("Last-Modified", v.Modified.UTC().Format(http.TimeFormat))
	http.ServeContent(c.w, c.r, "", time.Time{}, bytes.NewReader(v.data))
	return nil
}
