package scoped

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

const (
	azureVersion = "2023-11-03"
	azureTime    = "2006-01-02T15:04:05Z"
)

// signedByKey makes a shared access signature for the container, by the account's key.
func (m *Maker) signedByKey(_ context.Context, g storage.Grant, u Use) (storage.Grant, error) {
	key, err := base64.StdEncoding.DecodeString(g.Key)
	if err != nil {
		return storage.Grant{}, fmt.Errorf("the account's key is no base64")
	}
	return m.signed(g, u, key, []string{""}, nil), nil
}

// A delegation is a key that the store signs for, in place of the account's own.
type delegation struct {
	SignedOid, SignedTid, SignedStart, SignedExpiry, SignedService, SignedVersion, Value string
}

// signedByDelegation makes one in the name of who the token is of, who has to have the
// permission generateUserDelegationKey, as those have that may change blobs.
func (m *Maker) signedByDelegation(ctx context.Context, g storage.Grant, u Use) (storage.Grant, error) {
	from, to := m.span()
	text, err := m.post(ctx, g.Endpoint+"/?restype=service&comp=userdelegationkey",
		`<?xml version="1.0" encoding="utf-8"?><KeyInfo><Start>`+from+`</Start><Expiry>`+to+`</Expiry></KeyInfo>`,
		map[string]string{"Authorization": "Bearer " + g.Token, "X-Ms-Version": azureVersion, "Content-Type": "application/xml"})
	if err != nil {
		return storage.Grant{}, err
	}
	var d delegation
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(string(text), "\ufeff")), &d); err != nil {
		return storage.Grant{}, fmt.Errorf("the answer is no key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(d.Value)
	if err != nil || len(key) == 0 {
		return storage.Grant{}, fmt.Errorf("the answer has no key")
	}
	whom := []string{d.SignedOid, d.SignedTid, d.SignedStart, d.SignedExpiry, d.SignedService, d.SignedVersion, "", "", ""}
	return m.signed(g, u, key, whom, url.Values{
		"skoid": {d.SignedOid}, "sktid": {d.SignedTid}, "skt": {d.SignedStart}, "ske": {d.SignedExpiry}, "sks": {d.SignedService}, "skv": {d.SignedVersion},
	}), nil
}

// span is from when until when what is made now holds.
func (m *Maker) span() (from, to string) {
	now := m.now().UTC()
	return now.Add(-skew).Format(azureTime), now.Add(life).Format(azureTime)
}

// signed makes the signature. whom is what stands for the signer in what is signed, and more
// what stands for it in the signature.
func (m *Maker) signed(g storage.Grant, u Use, key []byte, whom []string, more url.Values) storage.Grant {
	from, to := m.span()
	may := "rcwdl"
	if u.ReadOnly {
		may = "rl"
	}
	protocol := "https"
	if strings.HasPrefix(g.Endpoint, "http://") {
		protocol = "https,http"
	}
	lines := []string{may, from, to, "/blob/" + g.Account + "/" + g.Bucket}
	lines = append(lines, whom...)
	const (
		addresses, snapshot, encryption = "", "", ""
		resource                        = "c" // a container
	)
	lines = append(lines, addresses, protocol, azureVersion, resource, snapshot, encryption, "", "", "", "", "")
	h := hmac.New(sha256.New, key)
	h.Write([]byte(strings.Join(lines, "\n")))
	q := url.Values{"sv": {azureVersion}, "st": {from}, "se": {to}, "sr": {resource}, "sp": {may}, "spr": {protocol}, "sig": {base64.StdEncoding.EncodeToString(h.Sum(nil))}}
	for k, v := range more {
		q[k] = v
	}
	n := without(g)
	n.SAS, n.Whose = q.Encode(), whose(g, u)
	n.Expires, _ = time.Parse(azureTime, to)
	return n
}
