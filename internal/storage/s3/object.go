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
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/storage"
)

// Stat asks for an object.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	o := op{permission: "s3:GetObject", key: key}
	if err := b.checkKey(key); err != nil {
		return storage.Object{}, err
	}
	out, err := withKeys(ctx, b, func() (*s3.HeadObjectOutput, error) {
		return b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.at.Bucket, Key: &key})
	})
	if err != nil {
		return storage.Object{}, b.refused(ctx, o, err)
	}
	x := object(key, aws.ToInt64(out.ContentLength), out.ETag, out.LastModified)
	x.Version, x.Metadata = aws.ToString(out.VersionId), lowered(out.Metadata)
	return x, nil
}

func lowered(metadata map[string]string) map[string]string {
	m := make(map[string]string, len(metadata))
	for k, v := range metadata {
		m[strings.ToLower(k)] = v
	}
	return m
}

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (storage.Reader, error) {
	o := op{permission: "s3:GetObject", key: key, conditional: g.IfMatch != ""}
	if err := b.checkKey(key); err != nil {
		return storage.Reader{}, err
	}
	in := &s3.GetObjectInput{Bucket: &b.at.Bucket, Key: &key, VersionId: text(g.Version)}
	if g.IfMatch != "" {
		in.IfMatch = aws.String(quoted(g.IfMatch))
	}
	if g.Length > 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", g.Offset, g.Offset+g.Length-1))
	} else if g.Offset > 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", g.Offset))
	}
	out, err := withKeys(ctx, b, func() (*s3.GetObjectOutput, error) { return b.client.GetObject(ctx, in) })
	if err != nil {
		o.conditional = false // an object that is not there does not exist, whatever it should have been
		return storage.Reader{}, b.refused(ctx, o, err)
	}
	length := aws.ToInt64(out.ContentLength)
	size := length
	if in.Range != nil {
		var first, last int64
		if _, err := fmt.Sscanf(aws.ToString(out.ContentRange), "bytes %d-%d/%d", &first, &last, &size); err != nil || first != g.Offset || last-first+1 != length {
			out.Body.Close()
			return storage.Reader{}, &storage.UnavailableError{Bucket: b.at, Err: fmt.Errorf("asked for %s of %q, got %q", *in.Range, key, aws.ToString(out.ContentRange))}
		}
	}
	x := object(key, size, out.ETag, out.LastModified)
	x.Version, x.Metadata = aws.ToString(out.VersionId), lowered(out.Metadata)
	return storage.Reader{ReadCloser: &content{ctx: ctx, bucket: b, key: key, body: out.Body, left: length}, Object: x}, nil
}

// content is the body of an answer, whose errors are the package's.
type content struct {
	ctx    context.Context // of the call that it belongs to
	bucket *Bucket
	key    string
	body   io.ReadCloser
	left   int64
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.left -= int64(n)
	if err == io.EOF && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		if c.ctx.Err() != nil {
			err = context.Cause(c.ctx)
		} else {
			err = &storage.UnavailableError{Bucket: c.bucket.at, Err: fmt.Errorf("reading %q: %w", c.key, err)}
		}
	}
	return n, err
}

func (c *content) Close() error { return c.body.Close() }

func quoted(etag string) string { return `"` + etag + `"` }

// checkKey refuses keys that the API cannot name.
func (b *Bucket) checkKey(key string) error {
	if key == "" || len(key) > b.Caps().MaxKey {
		return &storage.InvalidError{Bucket: b.at, Key: key, Err: fmt.Errorf("a key has 1 to %d bytes, this one has %d", b.Caps().MaxKey, len(key))}
	}
	return nil
}

// sums are the checksums of a body, one of which is set.
type sums struct {
	crc, md5 *string
	size     int64
}

// sum reads a body and goes back to its start.
func (b *Bucket) sum(body io.ReadSeeker) (sums, error) {
	var h hash.Hash
	if b.member.checksum == md5Sums {
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
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return sums{}, err
	}
	s := sums{size: n}
	text := base64.StdEncoding.EncodeToString(h.Sum(nil))
	if b.member.checksum == md5Sums {
		s.md5 = &text
	} else {
		s.crc = &text
	}
	return s, nil
}

// again runs a call that sends a body, from its start each time.
func again[T any](ctx context.Context, b *Bucket, body io.ReadSeeker, call func() (T, error)) (T, error) {
	return withKeys(ctx, b, func() (T, error) {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			var none T
			return none, err
		}
		return call()
	})
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
	o := op{permission: "s3:PutObject", key: key, conditional: p.IfMatch != "" || p.IfAbsent}
	match, none, err := b.conditions(p)
	if err == nil {
		err = b.checkKey(key)
	}
	if err != nil {
		return storage.Object{}, err
	}
	s, err := b.sum(body)
	if err != nil {
		return storage.Object{}, err
	}
	out, err := again(ctx, b, body, func() (*s3.PutObjectOutput, error) {
		return b.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &b.at.Bucket, Key: &key, Body: body, ContentLength: &s.size, ChecksumCRC32: s.crc, ContentMD5: s.md5,
			Metadata: p.Metadata, ContentType: text(p.ContentType), IfMatch: match, IfNoneMatch: none,
		}, unsigned)
	})
	if err != nil {
		return storage.Object{}, b.refused(ctx, o, err)
	}
	x := object(key, s.size, out.ETag, nil)
	x.Version, x.Metadata = aws.ToString(out.VersionId), p.Metadata
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

// inXML tells whether XML can carry a key as it is.
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
