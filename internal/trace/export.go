package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/semconv/v1.40.0"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Options say where traces go. What is not set here the standard OTEL_…
// variables say; without an endpoint in either there are no traces.
type Options struct {
	Endpoint string            // of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318
	Headers  map[string]string // of each call to it
	Sample   *float64          // which part of the traces that begin here is kept, 0 to 1; nil: all
	Version  string
	Getenv   func(string) string // nil: os.Getenv
	Logger   *slog.Logger
}

// New is the tracer that the options and the environment ask for; nil if they
// ask for none.
//
// The library's own HTTP exporter brings gRPC and its templates along, which
// would make the binary a third larger, so what sends is here.
func New(o Options) (*Tracer, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	send, err := newSender(o)
	if send == nil || err != nil {
		return nil, err
	}
	exporter := otlptrace.NewUnstarted(send)
	r, err := resource.Merge(resource.NewSchemaless(semconv.ServiceName("sky"), semconv.ServiceVersion(o.Version)), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if name := o.Getenv("OTEL_SERVICE_NAME"); name != "" {
		r, _ = resource.Merge(r, resource.NewSchemaless(semconv.ServiceName(name)))
	}
	options := []sdk.TracerProviderOption{sdk.WithBatcher(exporter), sdk.WithResource(r)}
	if o.Sample != nil {
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(*o.Sample))))
	}
	p := sdk.NewTracerProvider(options...)
	return &Tracer{tracer: p.Tracer(scope), stop: p.Shutdown}, nil
}

// sender posts spans. A receiver that does not answer costs the spans, never the
// work they are about.
type sender struct {
	url     string
	headers map[string]string
	gzip    bool
	client  *http.Client
	log     *slog.Logger

	mu   sync.Mutex
	told time.Time // when the log last said that spans were lost
}

// newSender is nil if no traces are wanted.
func newSender(o Options) (*sender, error) {
	env := func(name string) string { // the one about traces goes before the one about everything
		if v := o.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return o.Getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	if strings.EqualFold(o.Getenv("OTEL_SDK_DISABLED"), "true") || o.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	var target string
	switch {
	case o.Endpoint != "":
		target = strings.TrimRight(o.Endpoint, "/") + "/v1/traces"
	case o.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "":
		target = o.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	case o.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "":
		target = strings.TrimRight(o.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	default:
		return nil, nil
	}
	if u, err := url.Parse(target); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("traces cannot be sent to %q: it must be the URL of an OTLP receiver, such as http://127.0.0.1:4318", target)
	}
	if p := env("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q; only http/protobuf is spoken here", p)
	}
	s := &sender{url: target, headers: o.Headers, gzip: env("COMPRESSION") == "gzip", log: o.Logger, client: &http.Client{Timeout: 10 * time.Second}}
	if s.log == nil {
		s.log = slog.Default()
	}
	if len(s.headers) == 0 {
		s.headers = map[string]string{}
		for pair := range strings.SplitSeq(env("HEADERS"), ",") {
			k, v, ok := strings.Cut(pair, "=")
			if v, err := url.PathUnescape(strings.TrimSpace(v)); ok && err == nil {
				s.headers[strings.TrimSpace(k)] = v
			}
		}
	}
	if ms, err := strconv.Atoi(env("TIMEOUT")); err == nil && ms > 0 {
		s.client.Timeout = time.Duration(ms) * time.Millisecond
	}
	if file := env("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate", file)
		}
		s.client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	return s, nil
}

func (s *sender) Start(context.Context) error { return nil }

func (s *sender) Stop(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, and again if the receiver asks for that.
func (s *sender) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if s.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		body = b.Bytes()
	}
	const tries = 4
	for wait, n := 500*time.Millisecond, 1; ; wait, n = 2*wait, n+1 {
		again, err := s.post(ctx, body)
		if err == nil {
			return nil
		}
		if !again || n == tries || ctx.Err() != nil {
			s.lost(ctx, err)
			return nil // told once, in this log
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (s *sender) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for k, v := range s.headers {
		req.Header.Set(k, v)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	if res.StatusCode/100 != 2 {
		err = errors.New("the receiver answers " + res.Status)
	}
	return again, err
}

// lost tells of lost spans, at most once a minute.
func (s *sender) lost(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.told) < time.Minute {
		return
	}
	s.told = time.Now()
	s.log.WarnContext(ctx, "traces not sent", "err", err)
}
