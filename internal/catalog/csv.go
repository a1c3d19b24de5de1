package catalog

import "bytes"

// scanner reads CSV records without copying: fields are slices of the input,
// valid until the next record. Quoted fields may hold commas, doubled quotes
// and line breaks.
type scanner struct {
	rest   []byte
	fields [][]byte
	line   int // of the record just read, from 1
	next   int // line after it
	unq    []byte
}

func newScanner(text []byte) *scanner {
	return &scanner{rest: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), next: 1}
}

// scan reads the next record that is not an empty line; false at the end.
func (s *scanner) scan() bool {
	for len(s.rest) > 0 {
		s.line = s.next
		if s.record(); len(s.fields) > 1 || len(s.fields[0]) > 0 {
			return true
		}
	}
	return false
}

func (s *scanner) record() {
	s.fields, s.unq = s.fields[:0], s.unq[:0]
	end := bytes.IndexByte(s.rest, '\n')
	line := s.rest
	if end >= 0 {
		line = s.rest[:end]
	}
	if bytes.IndexByte(line, '"') >= 0 {
		s.quotedRecord()
		return
	}
	if end >= 0 {
		s.rest = s.rest[end+1:]
	} else {
		s.rest = nil
	}
	s.next++
	line = bytes.TrimSuffix(line, []byte("\r"))
	for {
		i := bytes.IndexByte(line, ',')
		if i < 0 {
			s.fields = append(s.fields, line)
			return
		}
		s.fields = append(s.fields, line[:i])
		line = line[i+1:]
	}
}

// quotedRecord reads a record that has a quote somewhere.
func (s *scanner) quotedRecord() {
	for {
		if len(s.rest) > 0 && s.rest[0] == '"' {
			s.fields = append(s.fields, s.quotedField())
		} else {
			i := bytes.IndexAny(s.rest, ",\n")
			if i < 0 {
				i = len(s.rest)
			}
			s.fields = append(s.fields, bytes.TrimSuffix(s.rest[:i], []byte("\r")))
			s.rest = s.rest[i:]
		}
		if len(s.rest) == 0 {
			s.next++
			return
		}
		c := s.rest[0]
		s.rest = s.rest[1:]
		if c == '\n' {
			s.next++
			return
		}
	}
}

// quotedField reads from an opening quote to the separator after the closing
// one; s.rest then begins with the separator.
func (s *scanner) quotedField() []byte {
	s.rest = s.rest[1:]
	start := len(s.unq)
	for {
		i := bytes.IndexByte(s.rest, '"')
		if i < 0 { // never closed: the rest of the file is the field
			s.next += bytes.Count(s.rest, []byte{'\n'})
			s.unq = append(s.unq, s.rest...)
			s.rest = nil
			break
		}
		s.next += bytes.Count(s.rest[:i], []byte{'\n'})
		s.unq = append(s.unq, s.rest[:i]...)
		s.rest = s.rest[i+1:]
		if len(s.rest) == 0 || s.rest[0] != '"' {
			break
		}
		s.unq = append(s.unq, '"')
		s.rest = s.rest[1:]
	}
	// What stands between the closing quote and the separator belongs to nothing.
	if i := bytes.IndexAny(s.rest, ",\n"); i >= 0 {
		s.rest = s.rest[i:]
	} else {
		s.rest = nil
	}
	return s.unq[start:len(s.unq):len(s.unq)]
}
