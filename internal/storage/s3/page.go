package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/skypilot-go/sky/internal/storage"
)

// A listing is the answer to ListObjectsV2.
type listing struct {
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key, ETag    string
		LastModified time.Time
		Size         int64
	}
	CommonPrefixes []struct{ Prefix string }
}

// list sends a request past the SDK's client, whose reading of XML takes most of the
// processor's time of a list.
func (b *Bucket) list(ctx context.Context, o storage.ListOptions) (listing, error) {
	c := b.call(http.MethodGet, "", "s3:ListBucket", emptySum)
	c.Header.Set("Accept-Encoding", "identity")
	for k, v := range map[string]string{"list-type": "2", "encoding-type": "url", "prefix": o.Prefix, "delimiter": o.Delimiter, "continuation-token": o.Token, "start-after": o.After} {
		if v != "" {
			c.Query.Set(k, v)
		}
	}
	if n := count(o.Max); n != nil {
		c.Query.Set("max-keys", strconv.Itoa(int(*n)))
	}
	answer, err := b.objects.Send(ctx, c)
	if err != nil {
		return listing{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return listing{}, b.objects.Broken(ctx, fmt.Errorf("the answer broke off: %w", err))
	}
	l, err := readListing(text)
	if err != nil {
		return listing{}, &storage.UnavailableError{Bucket: b.at, Err: fmt.Errorf("a list that cannot be read: %w", err)}
	}
	return l, nil
}

// readListing reads what stores write by [scanListing], and all else by encoding/xml.
func readListing(text []byte) (listing, error) {
	if l, err := scanListing(text); err == nil {
		return l, nil
	}
	var l listing
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		t, err := d.Token()
		if err != nil {
			return l, err
		}
		if e, ok := t.(xml.StartElement); ok {
			if e.Name.Local != "ListBucketResult" {
				return l, fmt.Errorf("it is a <%s>", e.Name.Local)
			}
			return l, d.DecodeElement(&l, &e)
		}
	}
}

var errOdd = errors.New("XML of another kind")

// scanListing reads elements without attributes, comments and the like; elements that it does
// not know are left out.
func scanListing(text []byte) (l listing, err error) {
	var path [4][]byte // of the elements that are open, from the root on
	depth := 0
	ended := false
	for {
		open := bytes.IndexByte(text, '<')
		if open < 0 {
			if !ended || len(bytes.TrimSpace(text)) > 0 {
				return l, errOdd
			}
			return l, nil
		}
		content := text[:open]
		text = text[open+1:]
		end := bytes.IndexByte(text, '>')
		if end < 1 {
			return l, errOdd
		}
		tag := text[:end]
		text = text[end+1:]
		switch {
		case tag[0] == '?' && depth == 0 && !ended && tag[len(tag)-1] == '?':
		case tag[0] == '!' || tag[0] == '?' || ended:
			return l, errOdd
		case tag[0] == '/':
			if depth == 0 || depth <= len(path) && !bytes.Equal(tag[1:], path[depth-1]) {
				return l, errOdd
			}
			if depth == 2 || depth == 3 {
				if err := l.set(path[1:depth], content); err != nil {
					return l, err
				}
			}
			depth--
			ended = depth == 0
		case tag[len(tag)-1] == '/': // an empty element
			if depth == 0 || bytes.HasPrefix(tag, []byte("Contents")) || bytes.HasPrefix(tag, []byte("CommonPrefixes")) {
				return l, errOdd
			}
		default:
			if depth == 0 { // with its namespace
				name, _, _ := bytes.Cut(tag, []byte(" "))
				if tag = name; string(name) != "ListBucketResult" {
					return l, errOdd
				}
			}
			if depth < len(path) {
				path[depth] = tag
			}
			depth++
			if depth == 2 {
				switch string(tag) {
				case "Contents":
					l.Contents = append(l.Contents, struct {
						Key, ETag    string
						LastModified time.Time
						Size         int64
					}{})
				case "CommonPrefixes":
					l.CommonPrefixes = append(l.CommonPrefixes, struct{ Prefix string }{})
				}
			}
		}
	}
}

// set takes the content of an element, by its name and that of the one around it.
func (l *listing) set(path [][]byte, content []byte) (err error) {
	name := string(path[len(path)-1])
	if len(path) == 1 {
		switch name {
		case "EncodingType":
			l.EncodingType, err = plainText(content)
		case "NextContinuationToken":
			l.NextContinuationToken, err = plainText(content)
		case "IsTruncated":
			l.IsTruncated, err = strconv.ParseBool(string(bytes.TrimSpace(content)))
		}
		return err
	}
	switch string(path[0]) {
	case "Contents":
		c := &l.Contents[len(l.Contents)-1]
		switch name {
		case "Key":
			c.Key, err = plainText(content)
		case "ETag":
			c.ETag, err = plainText(content)
		case "Size":
			c.Size, err = strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
		case "LastModified":
			c.LastModified, err = time.Parse(time.RFC3339, string(content))
		}
	case "CommonPrefixes":
		if name == "Prefix" {
			l.CommonPrefixes[len(l.CommonPrefixes)-1].Prefix, err = plainText(content)
		}
	}
	return err
}

// plainText resolves the five names and the numbers of characters.
func plainText(content []byte) (string, error) {
	if bytes.IndexByte(content, '\r') >= 0 {
		return "", errOdd
	}
	if bytes.IndexByte(content, '&') < 0 {
		return string(content), nil
	}
	for rest := content; ; {
		i := bytes.IndexByte(rest, '&')
		if i < 0 {
			return html.UnescapeString(string(content)), nil
		}
		rest = rest[i+1:]
		name, _, ok := bytes.Cut(rest, []byte(";"))
		switch string(name) {
		case "amp", "lt", "gt", "quot", "apos", "#34", "#39", "#38", "#60", "#62", "#x22", "#x27", "#xA", "#xD", "#x9":
		default:
			ok = false
		}
		if !ok {
			return "", errOdd
		}
	}
}

func (l listing) page(b *Bucket) (storage.Page, error) {
	encoding := types.EncodingType(l.EncodingType)
	page := storage.Page{Objects: make([]storage.Object, 0, len(l.Contents))}
	for i := range l.Contents {
		c := &l.Contents[i]
		key, err := plain(encoding, &c.Key)
		if err != nil {
			return page, err
		}
		page.Objects = append(page.Objects, object(key, c.Size, &c.ETag, &c.LastModified))
	}
	for i := range l.CommonPrefixes {
		p, err := plain(encoding, &l.CommonPrefixes[i].Prefix)
		if err != nil {
			return page, err
		}
		page.Prefixes = append(page.Prefixes, p)
	}
	if l.IsTruncated {
		if page.Next = l.NextContinuationToken; page.Next == "" {
			return page, &storage.UnavailableError{Bucket: b.at, Err: fmt.Errorf("a list breaks off without saying where it goes on")}
		}
	}
	return page, nil
}
