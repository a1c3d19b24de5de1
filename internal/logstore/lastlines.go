package logstore

import (
	"errors"
	"io/fs"
)

// LastLines is where the last n lines of a log begin, and how many there are.
func LastLines(kept Logs, name string, n int) (offset int64, lines int, err error) {
	f, err := kept.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	end, err := f.Size()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 64<<10)
	for at := end; at > 0; {
		size := min(at, int64(len(buf)))
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil {
			return 0, 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if buf[i] != '\n' || at+i == end-1 {
				continue
			}
			if lines++; lines == n {
				return at + i + 1, n, nil
			}
		}
	}
	if end > 0 {
		lines++
	}
	return 0, lines, nil
}
