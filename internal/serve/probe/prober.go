package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Prober sends probes. The zero value dials directly.
type Prober struct {
	// Dial opens connections to replicas; nil: as usual.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// mostAnswer is how much of an answer is read.
const mostAnswer = 64 << 10

// Probe asks the replica at a host and port once.
func (p Prober) Probe(ctx context.Context, address string, s Settings) Result {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	var err error
	switch s.Protocol {
	case TCP:
		err = p.tcp(ctx, address)
	case GRPC:
		err = p.grpc(ctx, address, s)
	default:
		err = p.http(ctx, address, s)
	}
	if err == nil {
		return Result{OK: true}
	}
	var timeout net.Error
	if ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		return Result{Timeout: true, Reason: fmt.Sprintf("no answer within %v", s.Timeout)}
	}
	return Result{Reason: reason(err)}
}

// reason is an error without the address, which says nothing to users.
func reason(err error) string {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		text = op.Err.Error()
	}
	return strings.TrimPrefix(text, "connect: ")
}

func (p Prober) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if p.Dial != nil {
		return p.Dial(ctx, network, address)
	}
	return Dial(ctx, network, address)
}

// dialTimeout bounds how long connecting to a replica takes.
const dialTimeout = 5 * time.Second

// Dial connects to a replica as usual.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, network, address)
}

func (p Prober) tcp(ctx context.Context, address string) error {
	c, err := p.dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// client makes connections for one probe only: what answers on an old
// connection may take no new ones.
func (p Prober) client(protocols *http.Protocols) (*http.Client, func()) {
	t := &http.Transport{DialContext: p.dial, DisableKeepAlives: protocols == nil, Protocols: protocols, MaxResponseHeaderBytes: mostAnswer}
	return &http.Client{
		Transport: t,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 5 || req.URL.Host != via[0].URL.Host {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}, t.CloseIdleConnections
}

func (p Prober) http(ctx context.Context, address string, s Settings) error {
	method, body := http.MethodGet, io.Reader(nil)
	if s.Body != "" {
		method, body = http.MethodPost, strings.NewReader(s.Body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+s.Path, body)
	if err != nil {
		return err
	}
	if s.Body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range s.Headers {
		req.Header.Set(k, v)
		if strings.EqualFold(k, "Host") {
			req.Host = v
		}
	}
	client, done := p.client(nil)
	defer done()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s answered %d", method, s.Path, res.StatusCode)
	}
	return nil
}

// Numbers of grpc.health.v1: the field of the request and of the answer, and
// the statuses.
const (
	healthField  = 1
	servingValue = 1
)

var healthWords = map[uint64]string{0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

// grpc calls grpc.health.v1.Health/Check over HTTP/2 without TLS. The call is
// written by hand: the gRPC library would be a large part of the binary.
func (p Prober) grpc(ctx context.Context, address string, s Settings) error {
	var message []byte
	if s.GRPCService != "" {
		message = protowire.AppendTag(nil, healthField, protowire.BytesType)
		message = protowire.AppendString(message, s.GRPCService)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/grpc.health.v1.Health/Check", bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	for k, v := range s.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/grpc+proto")
	req.Header.Set("Te", "trailers")
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", max(1, time.Until(deadline).Milliseconds())))
	}
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	client, done := p.client(h2)
	defer done()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if err != nil {
		return err
	}
	status, detail := res.Trailer.Get("Grpc-Status"), res.Trailer.Get("Grpc-Message")
	if status == "" {
		status, detail = res.Header.Get("Grpc-Status"), res.Header.Get("Grpc-Message")
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("the gRPC health call answered HTTP status %d", res.StatusCode)
	case status == "12":
		return errors.New("it has no gRPC health service (UNIMPLEMENTED)")
	case status != "0":
		return fmt.Errorf("the gRPC health call ended with status %q %s", status, detail)
	}
	serving, err := healthOf(answer)
	switch {
	case err != nil:
		return fmt.Errorf("the answer of the gRPC health service is broken: %w", err)
	case serving != servingValue:
		word, ok := healthWords[serving]
		if !ok {
			word = fmt.Sprint(serving)
		}
		return fmt.Errorf("the gRPC health service says %s", word)
	}
	return nil
}

// healthOf reads the status of a HealthCheckResponse in its frame.
func healthOf(frame []byte) (uint64, error) {
	if len(frame) < 5 {
		return 0, io.ErrUnexpectedEOF
	}
	if frame[0] != 0 {
		return 0, errors.New("it is compressed, which was not asked for")
	}
	b := frame[5:]
	if uint64(binary.BigEndian.Uint32(frame[1:5])) != uint64(len(b)) {
		return 0, io.ErrUnexpectedEOF
	}
	var status uint64
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if num == healthField && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, protowire.ParseError(n)
			}
			status, b = v, b[n:]
			continue
		}
		n = protowire.ConsumeFieldValue(num, kind, b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return status, nil
}
