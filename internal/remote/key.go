package remote

import "github.com/skypilot-go/sky/internal/remote/sshconn"

// PublicKey is the public half of a user's key, for machines that are rented
// with an sshd; "" where this server reaches none by ssh.
func (r *Connector) PublicKey(user string) (string, error) {
	if r.o.SSH == nil {
		return "", nil
	}
	_, public, err := r.userKey(user)
	return public, err
}

type keyPair struct{ path, public string }

// userKey is the file of a user's private key, and the public half. Servers that
// share a database agree on one pair, once in the life of a process.
func (r *Connector) userKey(user string) (path, public string, err error) {
	if r.o.ShareKey == nil {
		return sshconn.UserKey(r.o.SkyDir, user)
	}
	if k, ok := r.keys.Load(user); ok {
		return k.(keyPair).path, k.(keyPair).public, nil
	}
	path, public, err = sshconn.SharedKey(r.o.SkyDir, user, func(private []byte) ([]byte, error) { return r.o.ShareKey(user, private) })
	if err == nil {
		r.keys.Store(user, keyPair{path, public})
	}
	return path, public, err
}
