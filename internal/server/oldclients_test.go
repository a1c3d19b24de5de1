package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestAClientThatIsTooOldHearsHowToUpgrade(t *testing.T) {
	env := newTestEnv(t)
	r, _ := http.NewRequest(http.MethodGet, env.url+"/api/health", nil)
	r.Header.Set(api.HeaderAPIVersion, "20")
	r.Header.Set(api.HeaderVersion, "0.10.1")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	for _, want := range []string{`"error":"version_mismatch"`, "0.10.1", "20", "(version " + api.ProductVersion + ")", "pip install --upgrade 'skypilot>=0.11.0'"} {
		if got.StatusCode != http.StatusBadRequest || !strings.Contains(strings.ReplaceAll(string(text), `\u003e`, ">"), want) {
			t.Errorf("%d %s, want %s", got.StatusCode, text, want)
		}
	}
}

// Clients ask for all lines with a tail of 0 or less.
func TestATailBelowZeroIsAll(t *testing.T) {
	asked := []int{}
	env := newTestEnv(t, func(d *Deps) {
		d.ProvisionLogs = func(_ context.Context, q ProvisionLogs, out io.Writer) error {
			asked = append(asked, q.Tail)
			fmt.Fprintln(out, "line")
			return nil
		}
	})
	for _, tail := range []string{"-1", "0", "", "5"} {
		got, err := http.Post(env.url+"/provision_logs?follow=False&tail="+tail, "application/json", strings.NewReader(`{"cluster_name":"c"}`))
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != http.StatusOK {
			t.Errorf("tail=%s: %s", tail, got.Status)
		}
	}
	if fmt.Sprint(asked) != "[0 0 0 5]" {
		t.Errorf("tails %v", asked)
	}
	got, err := http.Post(env.url+"/provision_logs?tail=x", "application/json", strings.NewReader(`{"cluster_name":"c"}`))
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a tail that is no number: %s", got.Status)
	}
}
