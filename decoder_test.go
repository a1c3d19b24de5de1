package sky

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"io"
)

// decode runs the decoder over chunks and lists what came out: texts as they
// are, control lines as "code:text".
func decode(t testing.TB, r io.Reader) []string {
	t.Helper()
	var out []string
	d := &decoder{
		emit:    func(l []byte) error { out = append(out, string(l)); return nil },
		control: func(c Control) error { out = append(out, fmt.Sprintf("%s:%s", c.Code, c.Text)); return nil },
	}
	if _, err := io.Copy(d, r); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDecoder(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"lines", "a\nb\n", []string{"a\n", "b\n"}},
		{"a line without end is never shown", "a\nrest", []string{"a\n"}},
		{"carriage returns are progress", "10%\r20%\rdone\n", []string{"10%\r", "20%\r", "done\n"}},
		{"windows line ends", "a\r\nb\r\n", []string{"a\n", "b\n"}},
		{"an empty line", "\n", []string{"\n"}},
		{"a carriage return at the very end may still become a line end", "a\r", nil},
		{"control", `<sky-payload>"<rich_update>[bold cyan]Launching[/]</rich_update>"</sky-payload>` + "\n", []string{"rich_update:[bold cyan]Launching[/]"}},
		{"escaped control", `<sky-payload>"\u003crich_init\u003ehi\u003c/rich_init\u003e"</sky-payload>` + "\n", []string{"rich_init:hi"}},
		{"other text on a control line is lost", `before<sky-payload>"<heartbeat></heartbeat>"</sky-payload>after` + "\nx\n", []string{"heartbeat:", "x\n"}},
		{"unknown codes are skipped", `<sky-payload>"<sparkle>x</sparkle>"</sky-payload>` + "\nx\n", []string{"x\n"}},
		{"a payload that makes no sense is consumed", "<sky-payload>{</sky-payload>\nx\n", []string{"x\n"}},
		{"an open payload is text", "<sky-payload>x\n", []string{"<sky-payload>x\n"}},
		{"text over several lines", `<sky-payload>"<rich_update>a\nb</rich_update>"</sky-payload>` + "\n", []string{"rich_update:a\nb"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decode(t, strings.NewReader(tt.in)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := decode(t, iotest.OneByteReader(strings.NewReader(tt.in))); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte: got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDecoderHandsOverLogins(t *testing.T) {
	var sessions, lines []string
	d := &decoder{
		emit:        func(l []byte) error { lines = append(lines, string(l)); return nil },
		control:     func(Control) error { return nil },
		interactive: func(s string) error { sessions = append(sessions, s); return nil },
	}
	if _, err := d.Write([]byte("a\n<sky-interactive session=\"s-1\"/>\nb\n")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sessions, []string{"s-1"}) || !slices.Equal(lines, []string{"a\n", "b\n"}) {
		t.Errorf("sessions %q, lines %q", sessions, lines)
	}
}

func TestDecoderPassesVeryLongLinesInParts(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	got := decode(t, struct{ io.Reader }{strings.NewReader(long + "\nnext\n")})
	if len(got) < 3 || strings.Join(got, "") != long+"\nnext\n" {
		t.Fatalf("got %d parts of %d bytes", len(got), len(strings.Join(got, "")))
	}
	for _, part := range got[:len(got)-2] {
		if strings.ContainsAny(part, "\r\n") {
			t.Error("a part in the middle has a line end")
		}
	}
}

// However a stream is cut into chunks, the same comes out.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("a\r\nb\rc\n<sky-payload>\"<retry></retry>\"</sky-payload>\n"), 3)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		whole := decode(t, bytes.NewReader(in))
		size = max(1, size%8)
		var cut []string
		d := &decoder{
			emit:    func(l []byte) error { cut = append(cut, string(l)); return nil },
			control: func(c Control) error { cut = append(cut, fmt.Sprintf("%s:%s", c.Code, c.Text)); return nil },
		}
		for chunk := range slices.Chunk(in, size) {
			if _, err := d.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(whole, cut) {
			t.Errorf("in chunks of %d: %q, at once: %q", size, cut, whole)
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	text := []byte(strings.Repeat("(head, rank=0, pid=1) step 100 loss 0.123\n", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		d := &decoder{emit: func([]byte) error { return nil }, control: func(Control) error { return nil }}
		if _, err := d.Write(text); err != nil {
			b.Fatal(err)
		}
	}
}
