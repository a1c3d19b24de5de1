package filesync

import (
	"context"
	"io/fs"
	"os"
	"time"
)

// defaultTimeout is how long a step may go without progress.
const defaultTimeout = 60 * time.Second

// A Receiver is where files go.
type Receiver struct {
	Home string // relative destinations are below it
	// Place returns where a file or a folder that is sent to an absolute path is to be
	// written, before anything is; nil: at that path.
	Place func(ctx context.Context, path string, folder bool) (string, error)
}

// Options say what to send and where to.
type Options struct {
	// Src is the file or folder to send. If it is a symlink, what it points
	// to is sent.
	Src Source
	// Dst is the place at the receiver: absolute, or "~/x" or "x" below the
	// home of the receiving end. Missing parents are created.
	Dst string
	// Ignore leaves out what Walk leaves out.
	Ignore bool
	// Contents puts what is inside the folder Src into the folder Dst, whose
	// own mode and time stay as they are. Otherwise Src itself becomes Dst.
	Contents bool
	// Mirror names the source. If it is set, then what earlier syncs with the same
	// Mirror brought to Dst, and nobody changed there, is removed when the source
	// has it no more; and it makes room for what has become of another kind.
	Mirror string
	// Progress, if set, is called now and then from one goroutine, and once
	// at the end.
	Progress func(Progress)
	// Timeout bounds every step without progress; 0 is 60 s.
	Timeout time.Duration
	// Cache is the folder for the content hashes of source files; "" is
	// .sky/filesync in the home folder.
	Cache string
}

// cacheDir is where the hashes of source files are kept.
func (o *Options) cacheDir() string {
	if o.Cache != "" {
		return o.Cache
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return stateDir(home)
}

// Progress reports how far a Send is.
type Progress struct {
	Files, Wanted, Sent      int   // found at the source; asked for by the receiver so far; sent
	Bytes, WantedBytes, Done int64 // the same in bytes of content
}

// Stats sum up a Send.
type Stats struct {
	Files, Folders, Links int   // that the source has
	Sent                  int   // files whose content travelled, whole or in part
	Matched               int   // files that differed in time only: hashes travelled
	Bytes                 int64 // of all files
	SentBytes             int64 // of content that travelled, before compression
	Removed               int   // files, links and folders that the source has no more
	WireBytes             int64 // written to the connection
	Left                  Left  // what the source has that was not sent
}

// Left is what a source has that is not sent, and what is sent but of no use.
type Left struct {
	Ignored   int      // files and folders that ignore files leave out; what is in such a folder does not count
	Rules     []string // ignore files in effect, the first of them
	RuleFiles int      // how many there are
	Special   int      // sockets, devices and pipes
	State     []string // paths of sky's own state, below the source
	Dangling  []string // links that lead to nothing at the source, the first of them; they are sent
	Dangles   int      // how many there are
}

// maxNamed is how many links or ignore files Left names.
const maxNamed = 5

func (l *Left) dangling(path string) {
	if l.Dangles++; len(l.Dangling) < maxNamed {
		l.Dangling = append(l.Dangling, path)
	}
}

func (l *Left) rules(files ...string) {
	l.RuleFiles += len(files)
	l.Rules = append(l.Rules, files[:min(len(files), maxNamed-len(l.Rules))]...)
}

func (l *Left) add(more *Left) {
	l.RuleFiles += more.RuleFiles
	l.Rules = append(l.Rules, more.Rules[:min(len(more.Rules), maxNamed-len(l.Rules))]...)
	l.Ignored += more.Ignored
	l.Special += more.Special
	l.State = append(l.State, more.State...)
	l.Dangles += more.Dangles
	l.Dangling = append(l.Dangling, more.Dangling[:min(len(more.Dangling), maxNamed-len(l.Dangling))]...)
}

// An Entry is one thing of a source tree.
type Entry struct {
	Path    string // below the source, with slashes; "." is the source itself
	Mode    fs.FileMode
	Size    int64
	ModTime time.Time
	Target  string // of a symlink
}
