package balancer

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// A certificate is read from files, again when they have changed. While the new
// content is unusable, as half way through a renewal, the old one stays.
type certificate struct {
	log *slog.Logger

	mu     sync.Mutex
	files  balancerapi.TLS
	stamp  [2]stamp
	looked time.Time
	cert   *tls.Certificate
	err    error
}

// stamp is what changes with a file's content.
type stamp struct {
	mod  time.Time
	size int64
}

// inTable is the stamp of a certificate that is in no file.
var inTable = [2]stamp{{size: -1}, {size: -1}}

// lookEvery is how often the files are looked at.
const lookEvery = time.Second

// use sets which files the certificate is in.
func (c *certificate) use(files balancerapi.TLS) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files != files {
		c.files, c.stamp, c.looked = files, [2]stamp{}, time.Time{}
	}
	return c.look(time.Now())
}

// look reads the files if they have changed. The lock is held.
func (c *certificate) look(now time.Time) error {
	if !c.looked.IsZero() && now.Sub(c.looked) < lookEvery {
		return c.err
	}
	c.looked = now
	if c.files.Cert != "" {
		if c.cert != nil && c.err == nil && c.stamp == inTable {
			return nil
		}
		cert, err := tls.X509KeyPair([]byte(c.files.Cert), []byte(c.files.Key))
		if err != nil {
			return c.failed(err)
		}
		c.cert, c.stamp, c.err = &cert, inTable, nil
		return nil
	}
	var stamps [2]stamp
	for i, name := range []string{c.files.CertFile, c.files.KeyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return c.failed(err)
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	if stamps == c.stamp && c.err == nil && c.cert != nil {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return c.failed(err)
	}
	c.cert, c.stamp, c.err = &cert, stamps, nil
	return nil
}

func (c *certificate) failed(err error) error {
	err = fmt.Errorf("reading the TLS certificate: %w", err)
	if c.err == nil || c.err.Error() != err.Error() {
		c.log.Error("TLS certificate cannot be read", "err", err, "kept", c.cert != nil)
	}
	c.err = err
	return err
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.look(time.Now())
	if c.cert != nil {
		return c.cert, nil
	}
	return nil, err
}
