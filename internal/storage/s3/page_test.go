package s3

import (
	"bytes"
	"encoding/xml"
	"reflect"
	"strings"
	"testing"
)

// What the quick reader of lists takes is what encoding/xml reads.
func FuzzListing(f *testing.F) {
	for _, text := range []string{
		`<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>many/</Prefix><EncodingType>url</EncodingType><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken><Contents><ETag>&#34;d41d8cd98f00b204e9800998ecf8427e&#34;</ETag><Key>many/file%2B00000</Key><LastModified>2026-11-28T08:00:00Z</LastModified><Size>12</Size><StorageClass>STANDARD</StorageClass><Owner><ID>x</ID></Owner></Contents><CommonPrefixes><Prefix>many/d/</Prefix></CommonPrefixes></ListBucketResult>`,
		`<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a&quot;&lt;</Key><Size>0</Size><LastModified>2026-11-28T08:00:00.123Z</LastModified></Contents><Contents/></ListBucketResult>`,
		"<ListBucketResult>\n  <Contents>\n <Key>a\r\nb</Key> </Contents>\n</ListBucketResult>\n",
		`<ListBucketResult><Contents><Key><![CDATA[x]]></Key></Contents></ListBucketResult>`,
		`<ListBucketResult><!-- x --><IsTruncated>true</IsTruncated></ListBucketResult>`,
		`<ListBucketResult><Contents><Key a="1">x</Key></Contents></ListBucketResult>`,
		`<Error><Code>X</Code></Error>`, `<ListBucketResult>`, ``, `<ListBucketResult><Contents></ListBucketResult>`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := scanListing(text)
		if err != nil {
			return // encoding/xml reads it
		}
		var want listing
		if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&want); err != nil {
			return // it may be less strict
		}
		for i := range want.Contents {
			if i < len(got.Contents) && want.Contents[i].LastModified.Equal(got.Contents[i].LastModified) {
				got.Contents[i].LastModified = want.Contents[i].LastModified
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	})
}

func TestListingsOfStores(t *testing.T) {
	const text = `<ListBucketResult xmlns="x"><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>n</NextContinuationToken>` +
		`<Contents><Key>a%20b</Key><Size>7</Size><LastModified>2026-11-28T08:00:00.5Z</LastModified><ETag>&quot;e&quot;</ETag><Owner><ID>i</ID></Owner></Contents>` +
		`<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>`
	if _, err := scanListing([]byte(text)); err != nil {
		t.Errorf("the quick reader leaves it: %v", err)
	}
	// The same with what only encoding/xml reads.
	for _, text := range []string{text, strings.Replace(text, "<Contents>", "<!-- c --><Contents>", 1)} {
		l, err := readListing([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.page(nil)
		if err != nil || len(p.Objects) != 1 || p.Objects[0].Key != "a b" || p.Objects[0].Size != 7 || p.Objects[0].ETag != "e" || p.Objects[0].Modified.Nanosecond() != 5e8 ||
			len(p.Prefixes) != 1 || p.Prefixes[0] != "d/" || p.Next != "n" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	for _, text := range []string{"", "<html><body>busy</body></html>", "<Error><Code>SlowDown</Code></Error>", "<ListBucketResult><Contents><Key>a</Key>"} {
		if l, err := readListing([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, l)
		}
	}
}
