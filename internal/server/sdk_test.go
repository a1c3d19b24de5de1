package server

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// notInSDK are routes that no method of the Go client asks, and why.
var notInSDK = map[string]string{
	"GET /api/docs":                      "a page",
	"GET /auth/authorize":                "a page",
	"POST " + authorizePath:              "asked by that page",
	"GET /token":                         "a page",
	"GET /{$}":                           "a page",
	"GET /dashboard":                     "a page",
	"GET /dashboard/{path...}":           "pages",
	"GET /dashboard_config":              "asked by pages",
	"GET /serve/balancer/table":          "asked by load balancers",
	"GET /serve/balancer/connect":        "asked by load balancers",
	"POST /serve/balancer/report":        "asked by load balancers",
	"POST /upload":                       "the older form of /upload_v2",
	"POST /jobs/queue":                   "the older form of /jobs/queue/v2",
	"POST /autostop_logs":                "the older form of /hook_logs",
	"GET /recipes":                       "another form of /recipes/list",
	"GET /slurm_node_info":               "another form of the POST",
	"GET /slurm-job-ssh-proxy":           "another name of /kubernetes-pod-ssh-proxy",
	"POST /ssh_node_pools/{pool}/deploy": "another form of /ssh_node_pools/deploy",
	"POST /ssh_node_pools/{pool}/down":   "another form of /ssh_node_pools/down",
}

// TestTheGoClientHasEveryRoute calls every method of the Go client with made-up
// arguments. What it sends must be what some route takes, and every route must
// be asked by some method.
func TestTheGoClientHasEveryRoute(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	method := ""
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		rt := contract().route(r.Method, r.URL.Path)
		if rt == nil {
			t.Errorf("%s asks %s %s, which is no route", method, r.Method, r.URL.Path)
			return
		}
		asked[rt.Method+" "+rt.Path] = true
		w.Header().Set(api.HeaderRequestID, "id")
		w.Header().Set(api.HeaderAPIVersion, "53")
		raw, _ := io.ReadAll(r.Body)
		if rt.Body != nil {
			if p := rt.check(r, raw); p != nil {
				t.Errorf("%s sends to %s a body that is refused: %v", method, rt.Path, p)
			}
		} else if _, p := rt.Query.body(r.URL.Query()); p != nil {
			t.Errorf("%s sends to %s a query that is refused: %v", method, rt.Path, p)
		}
		switch {
		case rt.Path == "/api/health":
			fmt.Fprint(w, `{"status":"healthy","api_version":"53","version":"1","commit":"c"}`)
		case strings.HasPrefix(rt.Path, "/upload"):
			fmt.Fprint(w, `{"exists":false,"status":"completed"}`)
		case rt.Kind == Socket:
			http.Error(w, `{"detail":"no"}`, http.StatusBadRequest)
		default:
			fmt.Fprint(w, "null")
		}
	}))
	defer hs.Close()
	client, err := sky.New(sky.Options{Endpoint: hs.URL, Environ: []string{"HOME=" + t.TempDir(), "SKYPILOT_USER_ID=abcd"}, HTTPClient: hs.Client()})
	if err != nil {
		t.Fatal(err)
	}
	c := reflect.ValueOf(client)
	for i := range c.NumMethod() {
		for _, yes := range []bool{true, false} {
			mu.Lock()
			method = c.Type().Method(i).Name
			mu.Unlock()
			if method == "Send" || method == "SendLog" { // to whatever route one says
				continue
			}
			args := madeUp(t, method, c.Method(i).Type(), yes)
			if method == "Complete" {
				for _, kind := range []string{sky.CompleteClusters, sky.CompleteRequests, sky.CompleteStorages, sky.CompleteVolumes} {
					args[1] = reflect.ValueOf(kind)
					c.Method(i).Call(args)
				}
				continue
			}
			for _, out := range c.Method(i).Call(args) {
				if logs, ok := out.Interface().(*sky.LogStream); ok && logs != nil {
					_ = logs.Stream(t.Context(), io.Discard, sky.StreamOptions{})
				}
			}
		}
	}
	for _, rt := range Routes() {
		name := rt.Method + " " + rt.Path
		if _, left := notInSDK[name]; left == asked[name] {
			t.Errorf("%s: asked by a method of the Go client: %v; listed as left out: %v", name, asked[name], left)
		}
	}
}

// madeUp are arguments of a method: something in every field.
func madeUp(t *testing.T, method string, f reflect.Type, yes bool) []reflect.Value {
	var args []reflect.Value
	for i := range f.NumIn() {
		v := reflect.New(f.In(i)).Elem()
		switch p := v.Addr().Interface().(type) {
		case *context.Context:
			*p = t.Context()
		case *io.Writer:
			*p = io.Discard
		case *sky.StreamOptions:
		case *[]sky.UploadFile:
			*p = []sky.UploadFile{{Name: "x", Mode: fs.ModeDir | 0o755}}
		case *sky.AuditFilter:
			*p = sky.AuditFilter{Since: time.Unix(1, 0), User: "x"}
		default:
			fill(v, yes)
		}
		args = append(args, v)
	}
	if method == "Download" { // writes there
		args[2] = reflect.ValueOf(t.TempDir())
	}
	return args
}

func fill(v reflect.Value, yes bool) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(yes)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), yes)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), yes)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), yes)
			}
		}
	}
}
