package s3

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/storage"
)

// Keys may have characters that XML has not, so they are asked for encoded.

// plain decodes a key of a list.
func plain(encoding types.EncodingType, s *string) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return aws.ToString(s), nil
	}
	key, err := url.QueryUnescape(aws.ToString(s))
	if err != nil {
		return "", fmt.Errorf("a list has the key %q: %w", aws.ToString(s), err)
	}
	return key, nil
}

// text is nil for "", which the API takes for given.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func count(n int) *int32 {
	if n <= 0 {
		return nil
	}
	return aws.Int32(int32(min(n, 1000)))
}

// List lists objects.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	l, err := b.list(ctx, o)
	if err != nil {
		return storage.Page{}, err
	}
	return l.page(b)
}

func prefixes(encoding types.EncodingType, common []types.CommonPrefix) ([]string, error) {
	var out []string
	for _, c := range common {
		p, err := plain(encoding, c.Prefix)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func object(key string, size int64, etag *string, modified *time.Time) storage.Object {
	o := storage.Object{Key: key, Size: size, ETag: strings.Trim(aws.ToString(etag), `"`), Modified: aws.ToTime(modified)}
	// The ETag of what was put at once is its MD5, unless keys of the user's own
	// encrypt it: equality proves that contents are equal, and a difference nothing.
	if len(o.ETag) == 32 {
		if sum, err := hex.DecodeString(o.ETag); err == nil {
			o.MD5 = sum
		}
	}
	return o
}

// A place in lists that go on at two values.
type mark struct {
	Key string `json:"k"`
	ID  string `json:"i,omitempty"`
}

func (m mark) token() string {
	text, _ := json.Marshal(m)
	return string(text)
}

func readMark(token string) (m mark, err error) {
	if token != "" {
		err = json.Unmarshal([]byte(token), &m)
	}
	return m, err
}

// Versions lists all versions.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	if !b.Caps().Versions {
		return b.List(ctx, o)
	}
	from, err := readMark(o.Token)
	if err != nil {
		return storage.Page{}, &storage.InvalidError{Bucket: b.at, Err: err}
	}
	out, err := withKeys(ctx, b, func() (*s3.ListObjectVersionsOutput, error) {
		return b.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{
			Bucket: &b.at.Bucket, Prefix: text(o.Prefix), Delimiter: text(o.Delimiter), KeyMarker: text(from.Key), VersionIdMarker: text(from.ID),
			MaxKeys: count(o.Max), EncodingType: types.EncodingTypeUrl,
		})
	})
	if err != nil {
		return storage.Page{}, b.refused(ctx, op{permission: "s3:ListBucketVersions"}, err)
	}
	var page storage.Page
	for i := range out.Versions {
		v := &out.Versions[i]
		key, err := plain(out.EncodingType, v.Key)
		if err != nil {
			return page, err
		}
		x := object(key, aws.ToInt64(v.Size), v.ETag, v.LastModified)
		x.Version, x.Old = aws.ToString(v.VersionId), !aws.ToBool(v.IsLatest)
		page.Objects = append(page.Objects, x)
	}
	for _, d := range out.DeleteMarkers {
		key, err := plain(out.EncodingType, d.Key)
		if err != nil {
			return page, err
		}
		page.Objects = append(page.Objects, storage.Object{Key: key, Modified: aws.ToTime(d.LastModified), Version: aws.ToString(d.VersionId), Old: !aws.ToBool(d.IsLatest), DeleteMarker: true})
	}
	if page.Prefixes, err = prefixes(out.EncodingType, out.CommonPrefixes); err != nil {
		return page, err
	}
	if aws.ToBool(out.IsTruncated) {
		key, err := plain(out.EncodingType, out.NextKeyMarker)
		if err != nil {
			return page, err
		}
		page.Next = mark{key, aws.ToString(out.NextVersionIdMarker)}.token()
	}
	return page, nil
}

// Uploads lists unfinished uploads.
func (b *Bucket) Uploads(ctx context.Context, o storage.ListOptions) (storage.UploadPage, error) {
	from, err := readMark(o.Token)
	if err != nil {
		return storage.UploadPage{}, &storage.InvalidError{Bucket: b.at, Err: err}
	}
	out, err := withKeys(ctx, b, func() (*s3.ListMultipartUploadsOutput, error) {
		return b.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{
			Bucket: &b.at.Bucket, Prefix: text(o.Prefix), KeyMarker: text(from.Key), UploadIdMarker: text(from.ID),
			MaxUploads: count(o.Max), EncodingType: types.EncodingTypeUrl,
		})
	})
	if err != nil {
		return storage.UploadPage{}, b.refused(ctx, op{permission: "s3:ListBucketMultipartUploads"}, err)
	}
	var page storage.UploadPage
	for _, u := range out.Uploads {
		key, err := plain(out.EncodingType, u.Key)
		if err != nil {
			return page, err
		}
		page.Uploads = append(page.Uploads, storage.Upload{Key: key, ID: aws.ToString(u.UploadId), Started: aws.ToTime(u.Initiated)})
	}
	if aws.ToBool(out.IsTruncated) {
		key, err := plain(out.EncodingType, out.NextKeyMarker)
		if err != nil {
			return page, err
		}
		page.Next = mark{key, aws.ToString(out.NextUploadIdMarker)}.token()
	}
	return page, nil
}
