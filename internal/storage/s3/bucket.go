package s3

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/skypilot-go/sky/internal/storage"
)

// Head asks for the bucket.
func (b *Bucket) Head(ctx context.Context) (storage.BucketInfo, error) {
	out, err := withKeys(ctx, b, func() (*s3.HeadBucketOutput, error) {
		return b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.at.Bucket})
	})
	if err != nil {
		err = b.refused(ctx, op{permission: "s3:ListBucket"}, err)
		if _, denied := errors.AsType[*storage.DeniedError](err); denied {
			// The answer to HEAD has no words: that to GET says whether the keys are wrong.
			if _, why := b.List(ctx, storage.ListOptions{Max: 1}); said(why) {
				err = why
			}
		}
		return storage.BucketInfo{}, err
	}
	info := storage.BucketInfo{Region: aws.ToString(out.BucketRegion)}
	if info.Region == "" {
		info.Region = b.at.Region
	}
	return info, nil
}

// said reports whether an error says why a request was refused.
func said(err error) bool {
	_, denied := errors.AsType[*storage.DeniedError](err)
	_, keys := errors.AsType[*storage.CredentialsError](err)
	return denied || keys
}

// Create makes the bucket. Tags are set only if it has none: it may have been
// there, with those of its maker.
func (b *Bucket) Create(ctx context.Context, tags map[string]string) error {
	in := &s3.CreateBucketInput{Bucket: &b.at.Bucket}
	switch b.member.create {
	case createNever:
		return &storage.UnsupportedError{Store: b.at.Store, Op: "create buckets that are ready at once", Err: errors.New("create it yourself and name it by its URL")}
	case createSmart:
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(b.at.Region + "-smart")}
	case createAnywhere:
		if b.at.Region != "us-east-1" { // which has no name here
			in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(b.at.Region)}
		}
	}
	_, err := withKeys(ctx, b, func() (*s3.CreateBucketOutput, error) { return b.client.CreateBucket(ctx, in) })
	if api, ok := errors.AsType[smithy.APIError](err); err != nil && !(ok && api.ErrorCode() == "BucketAlreadyOwnedByYou") {
		return b.refused(ctx, op{permission: "s3:CreateBucket"}, err)
	}
	if len(tags) == 0 {
		return nil
	}
	have, err := b.Tags(ctx)
	if err != nil || len(have) > 0 {
		return err
	}
	return b.SetTags(ctx, tags)
}

// Delete deletes the bucket.
func (b *Bucket) Delete(ctx context.Context) error {
	_, err := withKeys(ctx, b, func() (*s3.DeleteBucketOutput, error) {
		return b.client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &b.at.Bucket})
	})
	return gone(b.refused(ctx, op{permission: "s3:DeleteBucket"}, err))
}

// gone takes what does not exist for deleted.
func gone(err error) error {
	if _, ok := errors.AsType[*storage.NotFoundError](err); ok {
		return nil
	}
	return err
}

// Tags are the bucket's tags.
func (b *Bucket) Tags(ctx context.Context) (map[string]string, error) {
	if !b.Caps().Tags {
		return nil, b.noTags()
	}
	out, err := withKeys(ctx, b, func() (*s3.GetBucketTaggingOutput, error) {
		return b.client.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &b.at.Bucket})
	})
	if api, ok := errors.AsType[smithy.APIError](err); ok && (api.ErrorCode() == "NoSuchTagSet" || api.ErrorCode() == "NoSuchTagSetError" || api.ErrorCode() == "BucketTaggingNotFound") {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, b.refused(ctx, op{permission: "s3:GetBucketTagging"}, err)
	}
	tags := map[string]string{}
	for _, t := range out.TagSet {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags, nil
}

// SetTags replaces the bucket's tags.
func (b *Bucket) SetTags(ctx context.Context, tags map[string]string) error {
	if !b.Caps().Tags {
		return b.noTags()
	}
	var set []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		set = append(set, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	_, err := withKeys(ctx, b, func() (any, error) {
		if len(set) == 0 {
			return b.client.DeleteBucketTagging(ctx, &s3.DeleteBucketTaggingInput{Bucket: &b.at.Bucket})
		}
		return b.client.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &b.at.Bucket, Tagging: &types.Tagging{TagSet: set}})
	})
	return b.refused(ctx, op{permission: "s3:PutBucketTagging"}, err)
}

func (b *Bucket) noTags() error {
	return &storage.UnsupportedError{Store: b.at.Store, Op: "keep tags of buckets"}
}
