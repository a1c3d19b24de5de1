//go:build unix

package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// recover reads the index, writes what of its pieces is not in run.log, and
// leaves l where the crashed agent was. A torn last line of the index stands
// for a piece of which nothing was written yet, and is forgotten.
func (l *jobLog) recover() error {
	st, err := l.out.Stat()
	if err != nil {
		return err
	}
	l.size = st.Size()
	rd := bufio.NewReaderSize(l.index, 64<<10)
	for {
		line, err := rd.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := l.replay(strings.TrimSuffix(line, "\n")); err != nil {
			// Only a crash of the whole machine can do that, and it has ended the
			// job: what follows may be in the log twice.
			l.log.Warn("index of a job's log is damaged", "file", l.index.Name(), "byte", l.indexAt, "err", err)
			break
		}
		l.indexAt += int64(len(line))
	}
	if err := l.index.Truncate(l.indexAt); err != nil {
		return err
	}
	b, ok := lastByte(l.out, l.size)
	l.open = ok && b != '\n'
	for _, s := range l.sources {
		if s.pos == 0 {
			continue
		}
		f, err := os.Open(filepath.Join(l.dir, s.path))
		if err != nil {
			continue // somebody removed it; there is nothing more to merge
		}
		b, ok := lastByte(f, s.pos)
		s.open = ok && b != '\n'
		f.Close()
	}
	return nil
}

func (l *jobLog) replay(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "S":
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return err
		}
		path, err1 := strconv.Unquote(quoted)
		prefix, err2 := strconv.Unquote(strings.TrimPrefix(rest[len(quoted):], " "))
		l.sources = append(l.sources, &source{path: path, prefix: prefix})
		return errors.Join(err1, err2)
	case "N":
		var off, length int64
		var key string
		if _, err := fmt.Sscanf(rest, "%d %d %s", &off, &length, &key); err != nil {
			return err
		}
		f := strings.SplitN(rest, " ", 4)
		text, err := strconv.Unquote(f[len(f)-1])
		if err != nil {
			return err
		}
		l.notes[key] = true
		l.last = -1
		return l.complete(off, length, func() ([]byte, error) { return []byte(text), nil })
	case "B":
		var off, length, from, to int64
		var src int
		var how string
		if _, err := fmt.Sscanf(rest, "%d %d %d %d %d %s", &off, &length, &src, &from, &to, &how); err != nil {
			return err
		}
		if src < 0 || src >= len(l.sources) || off < 0 || length < 0 || from < 0 || from > to || to-from > pieceSize {
			return errors.New("damaged")
		}
		s := l.sources[src]
		s.pos = to
		l.last = src
		return l.complete(off, length, func() ([]byte, error) {
			f, err := os.Open(filepath.Join(l.dir, s.path))
			if err != nil {
				return nil, err
			}
			defer f.Close()
			data := make([]byte, to-from)
			if _, err := f.ReadAt(data, from); err != nil {
				return nil, err
			}
			return parsePiece(how).render(nil, data, s.prefix), nil
		})
	}
	return fmt.Errorf("unknown entry %q", kind)
}

// complete writes the part of a piece that is missing at the end of run.log.
func (l *jobLog) complete(off, length int64, render func() ([]byte, error)) error {
	if l.size >= off+length {
		return nil
	}
	data, err := render()
	if err != nil || l.size < off || int64(len(data)) != length {
		// Raw output is gone, too: a person or a crash of the whole machine
		// removed it. What can be done is to go on behind the gap.
		return l.append(context.Background(), []byte("\n(some output is missing here)\n"))
	}
	return l.append(context.Background(), data[l.size-off:])
}
