// Package pki makes the certificates of one cluster. The API server keeps the
// authority; each node gets a certificate, and the server one for itself.
// Nothing else is trusted, so a stranger in the same network can neither talk
// to an agent nor pose as one.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// Role is what a certificate's holder may claim to be.
type Role string

const (
	RoleNone   Role = ""
	RoleServer Role = "server"
	RoleNode   Role = "node"
)

// hostName stands in every node's certificate: connections are checked against
// the cluster's authority, not against addresses, which change when a stopped
// machine starts again.
const hostName = "node.sky.internal"

// lifetime is long because a cluster's certificates are replaced with the
// cluster, and an expired one would cut us off from running machines.
const lifetime = 10 * 365 * 24 * time.Hour

// NewAuthority makes the authority of a cluster: a PEM bundle with its
// certificate and key and the API server's client certificate and key. The
// bundle is a secret.
func NewAuthority(name string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl, err := template("sky cluster "+name, RoleNone)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: ca, key: key}
	clientCert, clientKey, err := a.issue("sky api server", RoleServer)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{encodeCert(der), keyPEM, clientCert, clientKey}, nil), nil
}

// NodeFiles are what one node's agent needs, in PEM.
type NodeFiles struct{ CA, Cert, Key []byte }

// IssueNode makes a node's certificate from a bundle of NewAuthority.
func IssueNode(bundle []byte, nodeID string) (*NodeFiles, error) {
	a, _, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	cert, key, err := a.issue(nodeID, RoleNode)
	if err != nil {
		return nil, err
	}
	return &NodeFiles{CA: encodeCert(a.cert.Raw), Cert: cert, Key: key}, nil
}

// The names NodeFiles.Write gives its files.
const (
	caFile   = "ca.pem"
	certFile = "node.pem"
	keyFile  = "node.key"
)

// Files returns the content by file name, as Write lays it out.
func (f *NodeFiles) Files() map[string][]byte {
	return map[string][]byte{caFile: f.CA, certFile: f.Cert, keyFile: f.Key}
}

// Write puts the files into dir, each replaced atomically and readable by its
// owner only.
func (f *NodeFiles) Write(dir string) error {
	for name, data := range f.Files() {
		if err := wholefile.Write(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// ClientConfig is how the API server dials the agents of a cluster.
func ClientConfig(bundle []byte) (*tls.Config, error) {
	a, client, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	return dialConfig(a.cert, *client), nil
}

// NodeConfigs are how an agent listens (both sides show certificates) and how
// it dials the other agents of its cluster.
func NodeConfigs(dir string) (serve, dial *tls.Config, err error) {
	caPEM, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(caPEM)
	if block == nil {
		return nil, nil, fmt.Errorf("%s holds no certificate", filepath.Join(dir, caFile))
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	serve = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	}
	return serve, dialConfig(ca, own), nil
}

// PeerRole says what the other side of a verified connection is.
func PeerRole(cs *tls.ConnectionState) Role {
	if cs == nil || len(cs.VerifiedChains) == 0 {
		return RoleNone
	}
	for _, ou := range cs.PeerCertificates[0].Subject.OrganizationalUnit {
		switch Role(ou) {
		case RoleServer, RoleNode:
			return Role(ou)
		}
	}
	return RoleNone
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) issue(name string, role Role) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	tmpl, err := template(name, role)
	if err != nil {
		return nil, nil, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if role == RoleNode {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		tmpl.DNSNames = []string{hostName}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodeCert(der), keyPEM, err
}

func template(name string, role Role) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		// Clocks of fresh machines may be behind.
		NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter:  time.Now().Add(lifetime),
	}
	if role != RoleNone {
		t.Subject.OrganizationalUnit = []string{string(role)}
	}
	return t, nil
}

func dialConfig(ca *x509.Certificate, own tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{own},
		RootCAs:            pool,
		ServerName:         hostName,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
}

func parseBundle(bundle []byte) (*authority, *tls.Certificate, error) {
	var blocks []*pem.Block
	for rest := bundle; ; {
		var b *pem.Block
		b, rest = pem.Decode(rest)
		if b == nil {
			break
		}
		blocks = append(blocks, b)
	}
	if len(blocks) != 4 {
		return nil, nil, errors.New("the cluster's certificate bundle is damaged")
	}
	ca, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster authority: %w", err)
	}
	key, err := x509.ParseECPrivateKey(blocks[1].Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster authority: %w", err)
	}
	client, err := tls.X509KeyPair(pem.EncodeToMemory(blocks[2]), pem.EncodeToMemory(blocks[3]))
	if err != nil {
		return nil, nil, fmt.Errorf("server certificate: %w", err)
	}
	return &authority{cert: ca, key: key}, &client, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
