package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
)

// A server on a user's machine writes a token, a new one at each start, into a file
// that only the account reads that runs it. The token proves that
// its bearer is the server's owner. Command lines do not send it: somebody else may listen where the server was.
// They send a credential that is made from it for one address, and is worth nothing
// at another one or after the server's end.
const (
	// HeaderOwner carries the credential.
	HeaderOwner = "X-Sky-Owner"
	// HeaderChallenge asks the server for the proof that it knows the token, and
	// carries random text; the answer of /api/health has the proof in HeaderProof.
	HeaderChallenge = "X-Sky-Challenge"
	HeaderProof     = "X-Sky-Proof"
	// OwnerPrefix begins every token of an owner. Other programs than our command
	// line may send it as a bearer token.
	OwnerPrefix = "sky_owner_"
)

// OwnerCredential is what stands for the token in calls of the server that is
// reached at an address.
func OwnerCredential(token string, at netip.AddrPort) string {
	return authCode(token, "credential", address(at))
}

// OwnerProof is the server's answer to a challenge at an address, with the process
// that it tells of.
func OwnerProof(token string, at netip.AddrPort, challenge string, pid int) string {
	return authCode(token, "proof", address(at), challenge, strconv.Itoa(pid))
}

func address(at netip.AddrPort) string {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()).String()
}

// authCode is a message authentication code of the texts: only who knows the token can
// make it.
func authCode(token string, texts ...string) string {
	mac := hmac.New(sha256.New, []byte(token))
	for _, t := range texts {
		mac.Write([]byte(strconv.Itoa(len(t)) + ":" + t))
	}
	return hex.EncodeToString(mac.Sum(nil))
}
