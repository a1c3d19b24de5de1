package s3

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/storage"
)

// Start begins a multipart upload.
func (b *Bucket) Start(ctx context.Context, key string, p storage.PutOptions) (storage.Upload, error) {
	// Conditions are refused sooner than after all parts.
	if (p.IfMatch != "" || p.IfAbsent) && !b.Caps().ConditionalParts {
		return storage.Upload{}, &storage.UnsupportedError{Store: b.at.Store, Op: "complete uploads on a condition"}
	}
	if err := b.checkKey(key); err != nil {
		return storage.Upload{}, err
	}
	in := &s3.CreateMultipartUploadInput{Bucket: &b.at.Bucket, Key: &key, Metadata: p.Metadata, ContentType: text(p.ContentType)}
	if b.member.checksum == crc32Sums && !p.Copied {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	}
	out, err := withKeys(ctx, b, func() (*s3.CreateMultipartUploadOutput, error) { return b.client.CreateMultipartUpload(ctx, in) })
	if err != nil {
		return storage.Upload{}, b.refused(ctx, op{permission: "s3:PutObject", key: key}, err)
	}
	return storage.Upload{Key: key, ID: aws.ToString(out.UploadId), Copied: p.Copied}, nil
}

// PutPart uploads a part.
func (b *Bucket) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	c := b.call(http.MethodPut, u.Key, "s3:PutObject", anySum)
	c.Upload = u.ID
	c.Query.Set("partNumber", strconv.Itoa(n))
	c.Query.Set("uploadId", u.ID)
	s, err := b.sum(body, &c, b.member.checksum == md5Sums || u.Copied)
	if err != nil {
		return storage.Part{}, err
	}
	answer, err := b.objects.Send(ctx, c)
	if err != nil {
		return storage.Part{}, err
	}
	answer.Body.Close()
	return storage.Part{Number: n, Size: s.size, ETag: strings.Trim(answer.Header.Get("ETag"), `"`), Checksum: s.crc}, nil
}

// CopyPart makes a part of a range of an object.
func (b *Bucket) CopyPart(ctx context.Context, u storage.Upload, n int, from storage.Source, offset, length int64) (storage.Part, error) {
	in := &s3.UploadPartCopyInput{
		Bucket: &b.at.Bucket, Key: &u.Key, UploadId: &u.ID, PartNumber: aws.Int32(int32(n)),
		CopySource: source(from), CopySourceRange: aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)),
	}
	if from.ETag != "" {
		in.CopySourceIfMatch = aws.String(quoted(from.ETag))
	}
	out, err := withKeys(ctx, b, func() (*s3.UploadPartCopyOutput, error) { return b.client.UploadPartCopy(ctx, in) })
	if err != nil {
		return storage.Part{}, b.refused(ctx, op{permission: "s3:PutObject and s3:GetObject on the source", key: u.Key, upload: u.ID}, err)
	}
	part := storage.Part{Number: n, Size: length}
	if r := out.CopyPartResult; r != nil {
		part.ETag, part.Checksum = strings.Trim(aws.ToString(r.ETag), `"`), aws.ToString(r.ChecksumCRC32)
	}
	if part.ETag == "" {
		return storage.Part{}, &storage.UnavailableError{Bucket: b.at, Err: fmt.Errorf("the answer to the copy of part %d of %q says nothing", n, u.Key)}
	}
	return part, nil
}

// Parts lists the parts of an upload.
func (b *Bucket) Parts(ctx context.Context, u storage.Upload) ([]storage.Part, error) {
	var parts []storage.Part
	in := &s3.ListPartsInput{Bucket: &b.at.Bucket, Key: &u.Key, UploadId: &u.ID}
	for {
		out, err := withKeys(ctx, b, func() (*s3.ListPartsOutput, error) { return b.client.ListParts(ctx, in) })
		if err != nil {
			return nil, b.refused(ctx, op{permission: "s3:ListMultipartUploadParts", key: u.Key, upload: u.ID}, err)
		}
		for _, p := range out.Parts {
			parts = append(parts, storage.Part{
				Number: int(aws.ToInt32(p.PartNumber)), Size: aws.ToInt64(p.Size),
				ETag: strings.Trim(aws.ToString(p.ETag), `"`), Checksum: aws.ToString(p.ChecksumCRC32),
			})
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextPartNumberMarker) == "" {
			return parts, nil
		}
		in.PartNumberMarker = out.NextPartNumberMarker
	}
}

// Complete makes the object of its parts.
func (b *Bucket) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, p storage.PutOptions) (storage.Object, error) {
	match, none, err := b.conditions(p)
	if err != nil {
		return storage.Object{}, err
	}
	done := make([]types.CompletedPart, len(parts))
	var size int64
	for i, part := range parts {
		size += part.Size
		done[i] = types.CompletedPart{PartNumber: aws.Int32(int32(part.Number)), ETag: aws.String(quoted(part.ETag)), ChecksumCRC32: text(part.Checksum)}
	}
	out, err := withKeys(ctx, b, func() (*s3.CompleteMultipartUploadOutput, error) {
		return b.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &b.at.Bucket, Key: &u.Key, UploadId: &u.ID, MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
			IfMatch: match, IfNoneMatch: none,
		})
	})
	if err != nil {
		return storage.Object{}, b.refused(ctx, op{permission: "s3:PutObject", key: u.Key, upload: u.ID, conditional: p.IfMatch != "" || p.IfAbsent}, err)
	}
	x := object(u.Key, size, out.ETag, nil)
	x.Version, x.Metadata = aws.ToString(out.VersionId), p.Metadata
	return x, nil
}

// Abort ends an upload.
func (b *Bucket) Abort(ctx context.Context, u storage.Upload) error {
	_, err := withKeys(ctx, b, func() (*s3.AbortMultipartUploadOutput, error) {
		return b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.at.Bucket, Key: &u.Key, UploadId: &u.ID})
	})
	return gone(b.refused(ctx, op{permission: "s3:AbortMultipartUpload", key: u.Key, upload: u.ID}, err))
}
