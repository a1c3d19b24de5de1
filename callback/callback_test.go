package callback

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func read(t *testing.T, dir string) *summary {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "sky-callback-*", "*"))
	if err != nil || len(files) > 1 {
		t.Fatal(files, err)
	}
	if len(files) == 0 {
		return nil
	}
	text, err := os.ReadFile(files[0])
	s := new(summary)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWriter(t *testing.T) {
	dir := t.TempDir()
	w, err := Start(Options{Dir: dir, TotalSteps: 10})
	if err != nil {
		t.Fatal(err)
	}
	if s := read(t, dir); s == nil || s.NumSteps != 0 || s.WarmupSteps != 1 {
		t.Errorf("at the start: %+v", s)
	}
	w.Done()
	w.Done()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s := read(t, dir); s.NumSteps != 2 || *s.TotalSteps != 10 || s.TimePerStep == nil || s.EstimatedTotalTime == nil || *s.LastStepTime < s.CreateTime {
		t.Errorf("at the end: %+v", s)
	}
}

func TestOtherRanksWriteNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Start(Options{Dir: dir, Rank: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Done()
	if err := w.Close(); err != nil || read(t, dir) != nil {
		t.Errorf("%v", err)
	}
}

func TestFailedWrites(t *testing.T) {
	dir := t.TempDir()
	w, err := Start(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Error("a summary that could not be written is no error")
	}
}

// Steps end at 50, 70 and 90; the process began at 0.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		name        string
		s           summary
		each, whole float64
	}{
		{"without a warm-up", summary{WarmupEndTime: new(15.0), TotalSteps: new(10)}, 25, 15 + 25*10},
		{"with one", summary{WarmupSteps: 1, TotalSteps: new(10)}, 20, 50 + 20*9},
	} {
		for _, at := range []float64{50, 70, 90} {
			c.s.count(at)
		}
		if *c.s.TimePerStep != c.each || *c.s.EstimatedTotalTime != c.whole || *c.s.FirstStepTime != 50 || *c.s.LastStepTime != 90 {
			t.Errorf("%s: %v a step, %v in all", c.name, *c.s.TimePerStep, *c.s.EstimatedTotalTime)
		}
	}
}
