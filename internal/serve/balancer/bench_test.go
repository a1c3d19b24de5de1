package balancer

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// fastReplica answers every request with 1 KB, with as little work as can be.
func fastReplica(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) == 2 {
						c.Write(answer)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// BenchmarkRequest is one request of 32 connections that are kept.
func BenchmarkRequest(b *testing.B) {
	lb, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer lb.Shutdown(b.Context())
	err = lb.Apply(balancerapi.Table{Version: 1, Services: []balancerapi.Service{{Name: "s", Host: "127.0.0.1", Limits: balancerapi.Limits{IdleTimeout: 120},
		Replicas: []balancerapi.Replica{{ID: 1, Address: fastReplica(b), State: balancerapi.Ready}}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", lb.Addr("s").String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			io.WriteString(c, "GET /hello HTTP/1.1\r\nHost: x\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n")
			length := 0
			for {
				line, err := r.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if strings.HasPrefix(string(line), "Content-Length: 1024") {
					length = 1024
				}
				if len(line) == 2 {
					break
				}
			}
			if length == 0 {
				b.Error("no length")
				return
			}
			r.Discard(length)
		}
	})
}
