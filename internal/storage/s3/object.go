package s3

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Stat asks for an object.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Object{}, err
	}
	answer, err := b.objects.Send(ctx, b.call(http.MethodHead, key, "s3:GetObject", emptySum))
	if err != nil {
		return storage.Object{}, err
	}
	answer.Body.Close()
	size, err := b.objects.Size(ctx, key, answer, storage.GetOptions{})
	return described(key, size, answer.Header), err
}

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (storage.Reader, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Reader{}, err
	}
	c := b.call(http.MethodGet, key, "s3:GetObject", emptySum)
	if g.Version != "" {
		c.Query.Set("versionId", g.Version)
	}
	if g.IfMatch != "" {
		c.Header.Set("If-Match", quoted(g.IfMatch))
	}
	if r := rest.Range(g); r != "" {
		c.Header.Set("Range", r)
	}
	answer, err := b.objects.Send(ctx, c)
	if err != nil {
		return storage.Reader{}, err
	}
	size, err := b.objects.Size(ctx, key, answer, g)
	if err != nil {
		return storage.Reader{}, err
	}
	return storage.Reader{ReadCloser: b.objects.Content(ctx, key, answer), Object: described(key, size, answer.Header)}, nil
}

func quoted(etag string) string { return `"` + etag + `"` }

// checkKey refuses keys that the API cannot name.
func (b *Bucket) checkKey(key string) error {
	if key == "" || len(key) > b.Caps().MaxKey {
		return &storage.InvalidError{Bucket: b.at, Key: key, Err: fmt.Errorf("a key has 1 to %d bytes, this one has %d", b.Caps().MaxKey, len(key))}
	}
	return nil
}

// sums are what is known of a body; crc only where stores keep it.
type sums struct {
	crc  string
	size int64
}

// sum reads a body, and gives it and its checksum to a call.
func (b *Bucket) sum(body io.ReadSeeker, c *rest.Call, asMD5 bool) (sums, error) {
	var h hash.Hash
	if asMD5 {
		h = md5.New()
	} else {
		h = crc32.NewIEEE()
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return sums{}, err
	}
	n, err := io.Copy(h, body)
	if err != nil {
		return sums{}, err
	}
	s := sums{size: n}
	text := base64.StdEncoding.EncodeToString(h.Sum(nil))
	if asMD5 {
		c.Header.Set("Content-Md5", text)
	} else {
		s.crc = text
		c.Header.Set("X-Amz-Checksum-Crc32", text)
	}
	c.Body, c.Length = func() io.Reader { return rest.Rewound(body) }, n
	return s, nil
}

// conditions of a write; those that the store has not are refused.
func (b *Bucket) conditions(o storage.PutOptions) (match, none *string, err error) {
	if o.IfMatch == "" && !o.IfAbsent {
		return nil, nil, nil
	}
	if !b.Caps().Conditional {
		return nil, nil, &storage.UnsupportedError{Store: b.at.Store, Op: "write on a condition"}
	}
	if o.IfAbsent {
		none = aws.String("*")
	}
	if o.IfMatch != "" {
		match = aws.String(quoted(o.IfMatch))
	}
	return match, none, nil
}

// Put writes an object.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, p storage.PutOptions) (storage.Object, error) {
	match, none, err := b.conditions(p)
	if err == nil {
		err = b.checkKey(key)
	}
	if err != nil {
		return storage.Object{}, err
	}
	c := b.call(http.MethodPut, key, "s3:PutObject", anySum)
	s, err := b.sum(body, &c, b.member.checksum == md5Sums)
	if err != nil {
		return storage.Object{}, err
	}
	for k, v := range p.Metadata {
		c.Header.Set("X-Amz-Meta-"+k, v)
	}
	for name, value := range map[string]*string{"If-Match": match, "If-None-Match": none, "Content-Type": text(p.ContentType)} {
		if value != nil {
			c.Header.Set(name, *value)
		}
	}
	c.Conditional = match != nil || none != nil
	answer, err := b.objects.Send(ctx, c)
	if err != nil {
		return storage.Object{}, err
	}
	answer.Body.Close()
	x := described(key, s.size, answer.Header)
	x.Metadata = p.Metadata
	return x, nil
}

// source names an object to copy.
func source(from storage.Source) *string {
	text := escaped(from.Bucket.Location().Bucket) + "/" + escaped(from.Key)
	if from.Version != "" {
		text += "?versionId=" + url.QueryEscape(from.Version)
	}
	return &text
}

func escaped(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), "%2F", "/")
}

// Copy copies inside the store.
func (b *Bucket) Copy(ctx context.Context, key string, from storage.Source, p storage.PutOptions) (storage.Object, error) {
	o := op{permission: "s3:PutObject and s3:GetObject on the source", key: key, conditional: p.IfMatch != "" || p.IfAbsent || from.ETag != ""}
	match, none, err := b.conditions(p)
	if err == nil {
		err = b.checkKey(key)
	}
	if err != nil {
		return storage.Object{}, err
	}
	in := &s3.CopyObjectInput{Bucket: &b.at.Bucket, Key: &key, CopySource: source(from), IfMatch: match, IfNoneMatch: none}
	if from.ETag != "" {
		in.CopySourceIfMatch = aws.String(quoted(from.ETag))
	}
	if p.Metadata != nil {
		in.MetadataDirective, in.Metadata, in.ContentType = types.MetadataDirectiveReplace, p.Metadata, text(p.ContentType)
	}
	out, err := withKeys(ctx, b, func() (*s3.CopyObjectOutput, error) { return b.client.CopyObject(ctx, in) })
	if err != nil {
		return storage.Object{}, b.refused(ctx, o, err)
	}
	x := storage.Object{Key: key, Version: aws.ToString(out.VersionId)}
	if r := out.CopyObjectResult; r != nil {
		x.ETag, x.Modified = strings.Trim(aws.ToString(r.ETag), `"`), aws.ToTime(r.LastModified)
	}
	return x, nil
}

// Remove deletes objects.
func (b *Bucket) Remove(ctx context.Context, ids []storage.ID) error {
	if len(ids) > b.Caps().MaxRemove {
		return &storage.InvalidError{Bucket: b.at, Err: fmt.Errorf("%d objects are deleted at once, at most %d can be", len(ids), b.Caps().MaxRemove)}
	}
	var batch []types.ObjectIdentifier
	failed := &storage.RemoveError{}
	for _, id := range ids {
		if len(ids) > 1 && inXML(id.Key) {
			batch = append(batch, types.ObjectIdentifier{Key: aws.String(id.Key), VersionId: text(id.Version)})
			continue
		}
		_, err := withKeys(ctx, b, func() (*s3.DeleteObjectOutput, error) {
			return b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.at.Bucket, Key: aws.String(id.Key), VersionId: text(id.Version)})
		})
		err = b.refused(ctx, op{permission: deletePermission(id), key: id.Key}, err)
		if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
			continue
		}
		if err != nil {
			failed.Failed = append(failed.Failed, storage.Failed{ID: id, Err: err})
		}
	}
	if len(batch) > 0 {
		out, err := withKeys(ctx, b, func() (*s3.DeleteObjectsOutput, error) {
			return b.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &b.at.Bucket, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
		})
		if err != nil {
			return b.refused(ctx, op{permission: "s3:DeleteObject"}, err)
		}
		for _, e := range out.Errors {
			id := storage.ID{Key: aws.ToString(e.Key), Version: aws.ToString(e.VersionId)}
			err := b.classify(op{permission: deletePermission(id), key: id.Key}, refusal{code: aws.ToString(e.Code), message: aws.ToString(e.Message)})
			if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
				continue
			}
			failed.Failed = append(failed.Failed, storage.Failed{ID: id, Err: err})
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

func deletePermission(id storage.ID) string {
	if id.Version != "" {
		return "s3:DeleteObjectVersion"
	}
	return "s3:DeleteObject"
}

// inXML reports whether XML can carry a key as it is.
func inXML(key string) bool {
	for _, r := range key {
		switch {
		case r == '\t', r == '\n', r >= 0x20 && r <= 0xd7ff, r >= 0xe000 && r < 0xfffd, r >= 0x10000 && r <= 0x10ffff:
		default: // '\r' becomes '\n' on the way, and 0xfffd stands for what is no UTF-8
			return false
		}
	}
	return true
}
