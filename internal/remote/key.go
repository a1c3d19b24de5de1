package remote

import "github.com/skypilot-go/sky/internal/remote/sshconn"

// PublicKey is the public half of a user's key, for machines that are rented
// with an sshd; "" where this server reaches none by ssh.
func (r *Connector) PublicKey(user string) (string, error) {
	if r.o.SSH == nil {
		return "", nil
	}
	_, public, err := sshconn.UserKey(r.o.SkyDir, user)
	return public, err
}
