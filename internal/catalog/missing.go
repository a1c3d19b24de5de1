package catalog

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// MissingError means that there is no price list of a cloud, and why none could
// be had.
type MissingError struct {
	Cloud string
	Err   error
}

func (e *MissingError) Error() string {
	return "there is no price list for " + e.Cloud + ": " + cause(e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// Missing says in one line which price lists could not be had and why; clouds
// with the same reason stand together. err is what [Store.Tables] gave.
func Missing(err error) string {
	var order []string
	clouds := map[string][]string{}
	var other []string
	for _, e := range parts(err) {
		m, ok := errors.AsType[*MissingError](e)
		if !ok {
			other = append(other, e.Error())
			continue
		}
		why := cause(m.Err)
		if clouds[why] == nil {
			order = append(order, why)
		}
		clouds[why] = append(clouds[why], m.Cloud)
	}
	out := make([]string, 0, len(order)+len(other))
	for _, why := range order {
		out = append(out, "there is none for "+strings.Join(clouds[why], ", ")+": "+why)
	}
	return strings.Join(append(out, other...), "; ")
}

// parts are the errors that err joins, or err itself.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, parts(e)...)
	}
	return out
}

// cause is an error without what repeats itself: of a failed fetch the host and
// the cause, each once.
func cause(err error) string {
	var out []string
	for _, e := range parts(err) {
		text := e.Error()
		if u, ok := errors.AsType[*url.Error](e); ok {
			text = u.Err.Error()
			if name, ok := errors.AsType[*net.DNSError](e); ok {
				text = name.Err
			}
			if at, err := url.Parse(u.URL); err == nil {
				text = at.Host + ": " + text
			}
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
