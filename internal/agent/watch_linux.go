package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watcher says when files grow, through inotify: an agent whose jobs print
// nothing uses no CPU.
type watcher struct {
	f *os.File // nil: inotify is not to be had, see pollInterval

	mu    sync.Mutex
	files map[int32]string
	subs  map[string]*watched
}

type watched struct {
	wd   int32
	subs map[chan<- struct{}]int
}

func newWatcher(ctx context.Context) *watcher {
	w := &watcher{files: map[int32]string{}, subs: map[string]*watched{}}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w
	}
	w.f = os.NewFile(uintptr(fd), "inotify")
	go w.run()
	context.AfterFunc(ctx, func() { w.f.Close() })
	return w
}

func (w *watcher) run() {
	buf := make([]byte, 4096)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for off := 0; off+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[off]))
			off += unix.SizeofInotifyEvent + int(e.Len)
			if e.Mask&unix.IN_Q_OVERFLOW != 0 {
				for _, x := range w.subs {
					x.notify()
				}
				continue
			}
			if x := w.subs[w.files[e.Wd]]; x != nil {
				x.notify()
			}
		}
		w.mu.Unlock()
	}
}

func (x *watched) notify() {
	for c := range x.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// add sends to c, which has room for one, whenever the file grows or wake is
// called for it. The file must exist. It returns whether growth is seen; if not
// the caller has to look again from time to time.
func (w *watcher) add(path string, c chan<- struct{}) bool {
	path = filepath.Clean(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.subs[path]
	if x == nil {
		x = &watched{wd: -1, subs: map[chan<- struct{}]int{}}
		w.subs[path] = x
	}
	if x.wd < 0 && w.f != nil {
		if wd, err := w.watchFile(path); err == nil {
			x.wd = int32(wd)
			w.files[x.wd] = path
		}
	}
	x.subs[c]++
	return x.wd >= 0
}

func (w *watcher) watchFile(path string) (wd int, err error) {
	conn, err := w.f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if err2 := conn.Control(func(fd uintptr) {
		wd, err = unix.InotifyAddWatch(int(fd), path, unix.IN_MODIFY)
	}); err2 != nil {
		return -1, err2
	}
	return wd, err
}

// remove undoes one add.
func (w *watcher) remove(path string, c chan<- struct{}) {
	path = filepath.Clean(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.subs[path]
	if x == nil {
		return
	}
	if x.subs[c]--; x.subs[c] <= 0 {
		delete(x.subs, c)
	}
	if len(x.subs) > 0 {
		return
	}
	delete(w.subs, path)
	if x.wd >= 0 {
		delete(w.files, x.wd)
		if conn, err := w.f.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(x.wd)) })
		}
	}
}

// wake tells the watchers of a file to look at it, or at what it belongs to.
func (w *watcher) wake(path string) {
	path = filepath.Clean(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, x := range w.subs {
		if p == path || strings.HasPrefix(p, path+"/") {
			x.notify()
		}
	}
}
