package upstream

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// What is accepted as plain is what net/http reads from the same bytes.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc", "GET")
	f.Add("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\nX: a\r\nx: b\r\n\r\n", "POST")
	f.Add("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "GET")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HEAD")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "GET")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "GET")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "GET")
	f.Add("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", "GET")
	f.Add("HTTP/1.1 2000 OK\r\nContent-Length: 3\r\n\r\nabc", "GET")
	f.Fuzz(func(t *testing.T, text, method string) {
		if method != "HEAD" {
			method = "GET"
		}
		c := &Conn{R: bufio.NewReader(strings.NewReader(text))}
		got := c.plainAnswer(method)
		if got == nil {
			return
		}
		r := bufio.NewReader(strings.NewReader(text))
		want, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: net/http says %v", text, err)
		}
		if got.StatusCode != want.StatusCode || got.ContentLength != want.ContentLength || got.Close != want.Close || want.TransferEncoding != nil || want.Trailer != nil {
			t.Fatalf("%q:\n%+v\nnet/http says\n%+v", text, got, want)
		}
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Fatalf("%q: %v, net/http says %v", text, got.Header, want.Header)
		}
		body, err := io.ReadAll(got.Body)
		wantBody, wantErr := io.ReadAll(want.Body)
		if string(body) != string(wantBody) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: body %q, %v; net/http says %q, %v", text, body, err, wantBody, wantErr)
		}
		if err == nil {
			left, _ := io.ReadAll(c.R)
			wantLeft, _ := io.ReadAll(r)
			if string(left) != string(wantLeft) {
				t.Fatalf("%q: %q is left, net/http leaves %q", text, left, wantLeft)
			}
		}
	})
}
