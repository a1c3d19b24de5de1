package probe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestMetric(t *testing.T) {
	text := "# HELP q things\n# TYPE q gauge\nq{a=\"} 9\"} 2\nq 3 1700000000\nqq 100\nq_sum 50\nbad x\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(text))
	}))
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		name string
		want float64
		ok   bool
		bad  bool
	}{{"q", 5, true, false}, {"qq", 100, true, false}, {"none", 0, false, false}, {"bad", 0, false, true}} {
		got, ok, err := Prober{}.Metric(t.Context(), at, c.name)
		if got != c.want || ok != c.ok || (err != nil) != c.bad {
			t.Errorf("%s is %v, %v, %v", c.name, got, ok, err)
		}
	}
	s.Close()
	if _, _, err := (Prober{}).Metric(t.Context(), at, "q"); err == nil {
		t.Error("a replica that is gone has metrics")
	}
}
