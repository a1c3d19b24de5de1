// Package grpc calls unary methods of gRPC APIs with the client of package rest, which has
// the credentials, the pace and the errors. A message is a struct of Go whose fields have
// numbers, see [Marshal].
package grpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

const (
	contentType = "application/grpc"
	prefix      = 5 // bytes before a message: whether it is compressed, and its length
	maxAnswer   = 64 << 20
)

// Call calls a method such as nebius.compute.v1.InstanceService/Get. A token makes the call
// safe to repeat, where the API has a header for that.
func Call[Out any](ctx context.Context, c *rest.Client, method, token string, in any) (out Out, err error) {
	answer, err := rest.Send[rest.Text](ctx, c, rest.Call{Method: http.MethodPost, Path: "/" + method, Token: token, Body: rest.Raw{Type: contentType, Data: Frame(Marshal(in))}})
	if err == nil {
		if err = Unmarshal([]byte(answer), &out); err != nil {
			err = &rest.NoAnswerError{Cloud: method, Err: err}
		}
	}
	return out, err
}

// Frame is a message as it is sent.
func Frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Unframe is the message of a body, which has one.
func Unframe(body []byte) ([]byte, error) {
	switch {
	case len(body) < prefix:
		return nil, errors.New("it has no message")
	case body[0] != 0:
		return nil, errors.New("the message is compressed, which nobody asked for")
	case uint64(binary.BigEndian.Uint32(body[1:prefix])) != uint64(len(body)-prefix):
		return nil, errors.New("it is not one whole message")
	}
	return body[prefix:], nil
}

// codes are gRPC's words for how a call ended, with the statuses that HTTP has for them.
//
// https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
var codes = []struct {
	name   string
	status int
}{
	{"OK", 200}, {"CANCELLED", 504}, {"UNKNOWN", 500}, {"INVALID_ARGUMENT", 400}, {"DEADLINE_EXCEEDED", 504}, {"NOT_FOUND", 404}, {"ALREADY_EXISTS", 409}, {"PERMISSION_DENIED", 403},
	{"RESOURCE_EXHAUSTED", 429}, {"FAILED_PRECONDITION", 400}, {"ABORTED", 409}, {"OUT_OF_RANGE", 400}, {"UNIMPLEMENTED", 400}, {"INTERNAL", 500}, {"UNAVAILABLE", 503}, {"DATA_LOSS", 500}, {"UNAUTHENTICATED", 401},
}

// Code is gRPC's word for a code.
func Code(n int32) string {
	if n >= 0 && int(n) < len(codes) {
		return codes[n].name
	}
	return "CODE_" + strconv.Itoa(int(n))
}

// Status is google.rpc.Status: how a call, or an operation, ended.
type Status struct {
	Code    int32  `pb:"1"`
	Message string `pb:"2"`
	Details []Any  `pb:"3"`
}

// Any is google.protobuf.Any.
type Any struct {
	Type  string `pb:"1"`
	Value []byte `pb:"2"`
}

// unknown is the code UNKNOWN.
const unknown = 2

// Refusal is the status as an error of package rest; nil: it says that all is well. detail is
// what the details say more exactly: a code, "" for none, and a status of HTTP, 0 if the code
// only says more where gRPC's says nothing.
func (s Status) Refusal(detail func([]Any) (code string, status int)) *rest.Error {
	if s.Code == 0 {
		return nil
	}
	e := &rest.Error{Code: Code(s.Code), Status: http.StatusBadRequest, Message: s.Message}
	if int(s.Code) < len(codes) && s.Code > 0 {
		e.Status = codes[s.Code].status
	}
	if detail != nil {
		switch code, status := detail(s.Details); {
		case code == "":
		case status != 0:
			e.Code, e.Status = code, status
		case s.Code == unknown: // which proves nothing, but for a service that has a word for it
			e.Code, e.Status = code, http.StatusBadRequest
		}
	}
	return e
}

// Transport makes calls of gRPC what calls of REST are: the message is the body, and how the
// call ended is the status.
type Transport struct {
	Base   http.RoundTripper
	Detail func([]Any) (code string, status int) // as in Status.Refusal
}

// NewTransport is over connections of HTTP/2, which is what gRPC speaks, also without TLS.
func NewTransport(base http.RoundTripper, detail func([]Any) (code string, status int)) Transport {
	if base == nil {
		t := &http.Transport{Proxy: http.ProxyFromEnvironment, Protocols: new(http.Protocols)}
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetUnencryptedHTTP2(true)
		base = t
	}
	return Transport{base, detail}
}

// CloseIdleConnections drops the connections that are kept.
func (t Transport) CloseIdleConnections() {
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept")
	r.Header.Set("Te", "trailers")
	resp, err := t.Base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err // of something between here and the API
	}
	defer resp.Body.Close()
	body, err := bounded.ReadAll(resp.Body, maxAnswer, "an answer")
	if err != nil {
		return nil, err
	}
	ended := resp.Trailer
	if ended.Get("Grpc-Status") == "" {
		ended = resp.Header // where there is no message
	}
	n, err := strconv.ParseInt(ended.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return nil, errors.New("the answer does not say how the call ended")
	}
	status := Status{Code: int32(n)}
	if status.Message, err = url.PathUnescape(ended.Get("Grpc-Message")); err != nil {
		status.Message = ended.Get("Grpc-Message")
	}
	if text := ended.Get("Grpc-Status-Details-Bin"); text != "" {
		var whole Status
		if b, err := decode(text); err == nil && Unmarshal(b, &whole) == nil {
			status.Details = whole.Details
		}
	}
	if e := status.Refusal(t.Detail); e != nil {
		resp.StatusCode, resp.Header = e.Status, resp.Header.Clone()
		resp.Header.Set("Content-Type", "application/json")
		body, err = json.Marshal(map[string]string{"code": e.Code, "message": e.Message})
	} else if body, err = Unframe(body); err != nil {
		err = fmt.Errorf("the answer: %w", err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, err
}

// decode reads a header of bytes, whose base64 has its end or not.
func decode(text string) ([]byte, error) {
	if len(text)%4 == 0 {
		return base64.StdEncoding.DecodeString(text)
	}
	return base64.RawStdEncoding.DecodeString(text)
}
