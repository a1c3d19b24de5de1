package balancer

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// An ended request is what counters and the access log keep of it.
type ended struct {
	method, path, proto, remote, agent, trace string

	start     time.Time
	firstByte time.Duration // 0: there was no answer
	tries     int
	status    int
	in, out   int64
	why       string
}

func (x *exchange) ended() ended {
	return ended{method: x.r.Method, path: x.r.URL.Path, proto: x.r.Proto, remote: x.r.RemoteAddr, agent: x.r.UserAgent(), trace: x.trace,
		start: x.start, firstByte: x.firstByte, tries: x.tries, status: x.status, in: x.in.Load(), out: x.out.Load(), why: x.why}
}

// record counts a request that has ended, on the replica that it got, if any.
func (e *ended) record(s *service, g grant) {
	took := time.Since(e.start)
	if g.r != nil {
		for _, c := range [...]*counters{&g.r.counts, g.version} {
			if e.status != 0 {
				c.statuses[statusClass(e.status)].Add(1)
			}
			if e.firstByte > 0 {
				c.firstByte.observe(e.firstByte)
				c.duration.observe(took)
			}
			c.bytes.Add(e.out)
			c.bytesIn.Add(e.in)
		}
	}
	if s.b.access != nil {
		s.b.access.write(e, s.name, g, took)
	}
}

// An accessLog has a line of JSON for each request. Targets are logged without
// their query, which may have secrets.
type accessLog struct {
	mu  sync.Mutex
	w   *bufio.Writer
	buf []byte
}

func newAccessLog(w io.Writer) *accessLog {
	if w == nil {
		return nil
	}
	return &accessLog{w: bufio.NewWriterSize(w, 64<<10)}
}

func (l *accessLog) write(e *ended, service string, g grant, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(l.buf[:0], `{"time":"`...)
	b = e.start.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","service":`...)
	b = quote(b, service)
	if g.r != nil {
		b = number(append(b, `,"replica":`...), int64(g.r.ID))
		b = number(append(b, `,"version":`...), int64(g.number))
	}
	b = quote(append(b, `,"method":`...), e.method)
	b = quote(append(b, `,"path":`...), e.path)
	b = quote(append(b, `,"protocol":`...), e.proto)
	b = number(append(b, `,"status":`...), int64(e.status))
	b = number(append(b, `,"bytes_in":`...), e.in)
	b = number(append(b, `,"bytes_out":`...), e.out)
	b = seconds(append(b, `,"seconds":`...), took)
	if e.firstByte > 0 {
		b = seconds(append(b, `,"first_byte_seconds":`...), e.firstByte)
	}
	b = number(append(b, `,"attempts":`...), int64(e.tries))
	b = quote(append(b, `,"client":`...), e.remote)
	if e.agent != "" {
		b = quote(append(b, `,"user_agent":`...), e.agent)
	}
	b = quote(append(b, `,"traceparent":`...), e.trace)
	if e.why != "" {
		b = quote(append(b, `,"error":`...), e.why)
	}
	l.buf = append(b, "}\n"...)
	l.w.Write(l.buf)
	if cap(l.buf) > 16<<10 {
		l.buf = nil
	}
}

func (l *accessLog) flush() {
	if l != nil {
		l.mu.Lock()
		l.w.Flush()
		l.mu.Unlock()
	}
}

func number(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

func seconds(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, d.Seconds(), 'f', 6, 64)
}

// quote appends a string as JSON.
func quote(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, `\ufffd`...)
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}

var _ http.Handler = (*service)(nil)
