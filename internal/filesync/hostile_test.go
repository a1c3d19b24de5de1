//go:build unix

package filesync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// A script is what a hostile sender writes.
type script []byte

func (s *script) frame(kind byte, payload ...[]byte) {
	f := append(newFrame(kind), bytes.Join(payload, nil)...)
	*s = append(*s, seal(f)...)
}

func opened(dst string, blocks ...block) script {
	s := script(bytes.Clone(seal(hello{dst: dst}.frame())))
	for i := range blocks {
		blocks[i].id = i
		if blocks[i].perm == 0 {
			blocks[i].perm = 0o755
		}
		s.frame(frameFolders, appendBlock(nil, &blocks[i]))
	}
	s.frame(frameListed, []byte{byte(len(blocks))})
	return s
}

// against runs a script against a receiver and returns what it says at the
// end, and how Serve ends.
func against(t testing.TB, s script, home string) (verdict, served error) {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Serve(context.Background(), server, home)
		server.Close()
	}()
	answers := make(chan error, 1)
	go func() {
		for {
			kind, p, err := readFrame(client)
			if err != nil {
				answers <- err
				return
			}
			if kind == frameDone {
				d := decoder{b: p}
				answers <- readError(&d)
				io.Copy(io.Discard, client)
				return
			}
		}
	}()
	client.SetWriteDeadline(time.Now().Add(time.Minute))
	client.Write(s)
	select {
	case verdict = <-answers:
	case <-time.After(300 * time.Millisecond): // it waits for more
	}
	client.Close()
	select {
	case served = <-done:
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
	}
	return verdict, served
}

func TestHostileSenders(t *testing.T) {
	file := item{name: "f", size: 1, perm: 0o644}
	content := func(s script, block int) script {
		s.frame(frameFiles, appendRecord(nil, &record{block: block, content: []byte("x")}))
		return s
	}
	ended := func(s script) script {
		s.frame(frameEnd)
		return s
	}
	folder := func(path string, items ...item) block { return block{path: path, items: items} }
	named := func(name string) item { return item{name: name, size: 1, perm: 0o644} }
	link := item{name: "l", kind: kindLink, target: "../../outside", perm: 0o777}
	bigFile := item{name: "big", size: 1 << 40, perm: 0o644}
	for _, c := range []struct {
		name   string
		script script
	}{
		{"a path with ..", ended(content(opened("d", folder(".."), folder("../outside", file)), 1))},
		{"a path with .. further down", ended(content(opened("d", folder("a/../../outside", file)), 0))},
		{"an absolute path", ended(content(opened("d", folder("/outside", file)), 0))},
		{"a path with an empty element", ended(content(opened("d", folder("a//b", file)), 0))},
		{"a path of a dot", ended(content(opened("d", folder(".", file)), 0))},
		{"a name with a slash", ended(content(opened("d", folder("", named("../outside/f"))), 0))},
		{"a name of two dots", ended(content(opened("d", folder("", named(".."))), 0))},
		{"a name of a dot", ended(content(opened("d", folder("", named("."))), 0))},
		{"an empty name", ended(content(opened("d", folder("", named(""))), 0))},
		{"a name with a zero byte", ended(content(opened("d", folder("", named("a\x00b"))), 0))},
		{"a long name", ended(content(opened("d", folder("", named(strings.Repeat("n", 256)))), 0))},
		{"a long path", ended(content(opened("d", folder(strings.Repeat("n/", 2100)+"n", file)), 0))},
		{"a folder that is also a link", ended(content(opened("d", folder(""), folder("", link), folder("l", file)), 2))},
		{"a folder that is also a file", ended(content(opened("d", folder("", file), folder("f", file)), 0))},
		{"a folder without its parent", ended(content(opened("d", folder("no/parent", file)), 0))},
		{"a file twice", ended(content(content(opened("d", folder("", file)), 0), 0))},
		{"a file of an unknown folder", ended(content(opened("d", folder("", file)), 7))},
		{"a file that was not wanted", ended(content(opened("d", folder("", link)), 0))},
		{"a file too few", ended(opened("d", folder("", file)))},
		{"a file of another size", func() script {
			s := opened("d", folder("", file))
			s.frame(frameFiles, appendRecord(nil, &record{content: []byte("too long")}))
			return ended(s)
		}()},
		{"right what was not offered", func() script {
			s := opened("d", folder("", file))
			s.frame(frameFiles, appendRecord(nil, &record{how: recordSame}))
			return ended(s)
		}()},
		{"a chunk beyond the end", func() script {
			s := opened("d", folder("", file))
			s.frame(frameChunk, appendChunk(nil, &chunk{content: []byte("too long")}))
			return ended(s)
		}()},
		{"a chunk at an offset", func() script {
			s := opened("d", folder("", bigFile))
			s.frame(frameChunk, appendChunk(nil, &chunk{offset: 1 << 39, content: []byte("x")}))
			return ended(s)
		}()},
		{"a wrong hash", func() script {
			s := opened("d", folder("", file))
			s.frame(frameChunk, appendChunk(nil, &chunk{flags: chunkLast, content: []byte("x")}))
			return ended(s)
		}()},
		{"the last chunk too early", func() script {
			s := opened("d", folder("", bigFile))
			s.frame(frameChunk, appendChunk(nil, &chunk{flags: chunkLast, hash: blake3.Sum256([]byte("x")), content: []byte("x")}))
			return ended(s)
		}()},
		{"content before the list", func() script {
			s := script(bytes.Clone(seal(hello{dst: "d"}.frame())))
			return ended(content(s, 0))
		}()},
		{"the end before the list", ended(script(bytes.Clone(seal(hello{dst: "d"}.frame()))))},
		{"two lists", func() script {
			s := opened("d", folder(""))
			s.frame(frameListed, []byte{1})
			return ended(s)
		}()},
		{"a list that is not whole", func() script {
			s := script(bytes.Clone(seal(hello{dst: "d"}.frame())))
			s.frame(frameListed, []byte{3})
			return ended(s)
		}()},
		{"a folder part twice", func() script {
			s := script(bytes.Clone(seal(hello{dst: "d"}.frame())))
			s.frame(frameFolders, appendBlock(nil, &block{}), appendBlock(nil, &block{}))
			return ended(s)
		}()},
		{"more entries than there is room for", func() script {
			s := script(bytes.Clone(seal(hello{dst: "d"}.frame())))
			s.frame(frameFolders, []byte{0, 0, 0, 0, 0xff, 0x1f})
			return ended(s)
		}()},
		{"a link to nothing", ended(opened("d", folder("", item{name: "l", kind: kindLink})))},
		{"two openings", append(script(bytes.Clone(seal(hello{dst: "d"}.frame()))), seal(hello{dst: "e"}.frame())...)},
		{"another protocol", script("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"a huge frame", script{frameHello, 0xff, 0xff, 0xff, 1, 2, 3}},
		{"a frame that unpacks to too much", func() script {
			var s script
			s.frame(frameHello|packed, []byte{0xff, 0xff, 0xff, 0x7f}, zstdWriter().EncodeAll(make([]byte, 1<<22), nil))
			return s
		}()},
		{"an unknown frame", func() script {
			s := opened("d", folder(""))
			s.frame('?')
			return s
		}()},
		{"a single file that is a tree", func() script {
			s := script(bytes.Clone(seal(hello{dst: "d", file: true}.frame())))
			s.frame(frameFolders, appendBlock(nil, &block{path: "x", items: []item{file}}))
			return ended(s)
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			write(t, top, map[string]string{"outside/keep": "safe", "home/": ""})
			before := snapshot(t, filepath.Join(top, "outside"))
			verdict, served := against(t, c.script, filepath.Join(top, "home"))
			if verdict == nil && served == nil {
				t.Error("nobody complains")
			}
			if after := snapshot(t, filepath.Join(top, "outside")); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("it got out: %v", after)
			}
			if names, _ := os.ReadDir(top); len(names) != 2 {
				t.Errorf("it got out: %v", names)
			}
			if _, err := os.Lstat(filepath.Join(top, "home/d/f")); err == nil && strings.Contains(c.name, "hash") {
				t.Error("a file with a wrong hash was published")
			}
		})
	}
}

func TestVersions(t *testing.T) {
	var s script
	s.frame(frameHello, []byte(magic), []byte{99, 0, 1, 'd'})
	verdict, served := against(t, s, t.TempDir())
	if _, ok := errors.AsType[*versionError](verdict); !ok {
		t.Errorf("%v, %v", verdict, served)
	}
}

// TestFoldersSwappedForLinks swaps a folder for a link while files arrive in
// it.
func TestFoldersSwappedForLinks(t *testing.T) {
	src, home, outside := t.TempDir(), t.TempDir(), t.TempDir()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("a/b/f%d", i)] = "x"
	}
	write(t, src, files)
	conn := serve(t, home)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		a := filepath.Join(home, "d/a")
		for {
			select {
			case <-stop:
				return
			default:
			}
			if os.Rename(a, a+"2") == nil {
				os.Symlink(outside, a)
				time.Sleep(100 * time.Microsecond)
				os.Remove(a)
				os.Rename(a+"2", a)
			}
		}
	})
	must(t, os.Mkdir(filepath.Join(outside, "b"), 0o755))
	for range 20 {
		Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"}) // may fail, or not
		os.RemoveAll(filepath.Join(home, "d/a/b"))
	}
	close(stop)
	wg.Wait()
	if names, _ := os.ReadDir(filepath.Join(outside, "b")); len(names) > 0 {
		t.Errorf("%d files got out", len(names))
	}
}

func TestHostileReceivers(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"a": "1", "b": strings.Repeat("2", smallFile+1)})
	must(t, os.Symlink("a", filepath.Join(src, "l")))
	for _, c := range []struct {
		name   string
		script func(*script)
	}{
		{"wants of an unknown folder", func(s *script) { s.frame(frameWants, appendWants(nil, 5, nil)) }},
		{"wants an entry that is not there", func(s *script) { s.frame(frameWants, appendWants(nil, 0, []want{{item: 9}})) }},
		{"wants all twice", func(s *script) { s.frame(frameWants, appendWants(appendWants(nil, 0, nil), 0, nil)) }},
		{"wants everything that can be, links too", func(s *script) { s.frame(frameWants, appendWants(nil, 0, []want{{item: 0}, {item: 1}, {item: 2}})) }},
		{"has done nothing", func(s *script) { s.frame(frameDone, []byte{codeOK}) }},
		{"an unknown frame", func(s *script) { s.frame('?') }},
		{"the end of the stream", func(s *script) {}},
		{"half a frame", func(s *script) { *s = append(*s, frameDone, 9, 0) }},
		{"an error with something behind it", func(s *script) { s.frame(frameDone, appendError(nil, io.EOF), []byte("more")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := pair(t)
			go func() {
				in := server
				for { // wait for the list
					kind, _, err := readFrame(in)
					if err != nil {
						return
					}
					if kind == frameListed {
						break
					}
				}
				var s script
				c.script(&s)
				server.Write(s)
				server.(*net.UnixConn).CloseWrite()
				io.Copy(io.Discard, server)
			}()
			_, err := Send(t.Context(), client, Options{Src: Local(src), Dst: "d"})
			if err == nil {
				t.Error("nobody complains")
			}
		})
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, err := range []error{
		nil, errors.New("text"), &NoSpaceError{Path: "/a/b"}, fmt.Errorf("wrapped: %w", &NoSpaceError{Path: "p"}),
		&ConflictError{Path: "/x", Have: "a file", Want: "a folder"},
	} {
		d := decoder{b: appendError(nil, err)}
		got := readError(&d)
		if d.end() != nil || fmt.Sprint(got) != fmt.Sprint(err) && !strings.Contains(err.Error(), fmt.Sprint(got)) {
			t.Errorf("%v became %v", err, got)
		}
		if _, was := errors.AsType[*NoSpaceError](err); was {
			if _, is := errors.AsType[*NoSpaceError](got); !is {
				t.Errorf("%v lost its type", err)
			}
		}
	}
	d := decoder{b: appendError(nil, errors.New("clear\x1b[2J\nscreen"))}
	if got := readError(&d).Error(); strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%q", got)
	}
}
