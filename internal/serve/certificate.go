package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// mostCertificate is the size of a file of service.tls, in bytes.
const mostCertificate = 1 << 20

// hasCertificate reports whether the files of service.tls came with the version.
func (v *version) hasCertificate() bool {
	_, key := v.task.FileMountsMapping[v.spec.Balance.KeyFile]
	_, cert := v.task.FileMountsMapping[v.spec.Balance.CertFile]
	return key && cert
}

// certificate is that of a version's endpoint: what came with the version, else files
// of the machines of balancers, which these read again when they change; nil: there is
// none.
func (m *Manager) certificate(ctx context.Context, v *version) (*balancerapi.TLS, error) {
	b := v.spec.Balance
	if b.KeyFile == "" {
		return nil, nil
	}
	if !v.hasCertificate() {
		return &balancerapi.TLS{KeyFile: b.KeyFile, CertFile: b.CertFile}, nil
	}
	key, err := m.Files.Read(ctx, v.task, v.Files, b.KeyFile, mostCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := m.Files.Read(ctx, v.task, v.Files, b.CertFile, mostCertificate)
	if err != nil {
		return nil, err
	}
	return &balancerapi.TLS{Cert: string(cert), Key: string(key)}, nil
}

// checkCertificate refuses what is no certificate. Files that are not here may be on
// the machines of balancers.
func (m *Manager) checkCertificate(ctx context.Context, v *version) error {
	c, err := m.certificate(ctx, v)
	switch {
	case err != nil || c == nil:
		return err
	case c.Cert != "":
		_, err = tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
	default:
		if _, err = tls.LoadX509KeyPair(c.CertFile, c.KeyFile); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		b := v.spec.Balance
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("service.tls: %s and %s are no certificate with its key: %v", b.CertFile, b.KeyFile, err), Err: err}
	}
	return nil
}
