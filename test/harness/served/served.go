// Package served is the program of a replica of a service, for tests.
package served

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// Run serves at an address until it fails, and returns the exit code. It is ready at
// once, and says its version and replica:
//
//	/           "VERSION ID", after ?ms= milliseconds; in a VERSION that begins with
//	            "bad" the status is 500
//	/health     200, in a VERSION that begins with "never" 503
//	/stream     ?n= events, one in 50 ms
//	/upload     the SHA-256 of the body
//	/websocket  an echo
//	/echo.Echo/ a call of gRPC whose answer is the request
func Run(address string) int {
	version, id := os.Getenv("VERSION"), os.Getenv("SKYPILOT_SERVE_REPLICA_ID")
	is := func(kind string) bool { return len(version) >= len(kind) && version[:len(kind)] == kind }
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
		}
		if is("bad") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, version, " ", id)
	})
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) {
		if is("never") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		fmt.Fprintf(w, "data: done by %s\n\n", version)
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		if _, err := io.Copy(sum, r.Body); err == nil {
			fmt.Fprint(w, hex.EncodeToString(sum.Sum(nil)))
		}
	})
	mux.HandleFunc("/websocket", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, text, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), kind, append([]byte(version+" "), text...)) != nil {
				return
			}
		}
	})
	mux.HandleFunc("/echo.Echo/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		io.Copy(w, r.Body)
		w.Header().Set("Grpc-Status", "0")
	})
	s := http.Server{Addr: address, Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	fmt.Println("serving", version, "on", address)
	fmt.Fprintln(os.Stderr, s.ListenAndServe())
	return 1
}
