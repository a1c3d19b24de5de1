package config

import (
	"bytes"
	"testing"

	"github.com/skypilot-go/sky/internal/yaml11"
)

func FuzzLoad(f *testing.F) {
	for _, text := range goodConfigs {
		f.Add([]byte(text))
	}
	for _, test := range badConfigs {
		f.Add([]byte(test.text))
	}
	f.Add([]byte(manyPlaces))
	f.Add([]byte(withSecrets))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parse(text, newSource(LayerUser, "f"))
		if err != nil || n == nil {
			return
		}
		problems, _ := validate(n, Server)
		for _, p := range problems {
			if p.Text == "" || p.Origin.Source != "f" {
				t.Fatalf("a problem without words or place: %+v", p)
			}
		}
		again, err := parse(emit(n), newSource("", ""))
		if err != nil || again != nil && !identical(n, again) && n.Kind != Null {
			t.Fatalf("%v: %q does not read back from\n%s", err, text, emit(n))
		}
		if len(problems) > 0 || n.Kind != Map {
			return
		}
		c := &Config{side: Server, root: n, own: n}
		c.Show()
		c.YAML()
		c.For(Scope{Cloud: "kubernetes", Region: "east"}).Value("pod_config")
		if _, err := c.Request(c.ForRequest(), Admin); err != nil && c.missingWorkspace() == nil {
			t.Fatalf("a server does not accept its own configuration: %v", err)
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("a: {b: 1}"), []byte("a: {c: 1}"))
	f.Add([]byte("kubernetes: {pod_config: {spec: {containers: [{name: a}]}}}"), []byte("kubernetes: {pod_config: {spec: {containers: [{image: b}, 5]}}}"))
	f.Add([]byte("kubernetes: {pod_config: {imagePullSecrets: [a]}}"), []byte("kubernetes: {pod_config: {imagePullSecrets: [{name: b}]}}"))
	f.Add([]byte("aws: ~"), []byte("aws: [1]"))
	f.Add([]byte(manyPlaces), []byte(withSecrets))
	f.Fuzz(func(t *testing.T, base, over []byte) {
		a, err := parse(base, newSource("", ""))
		if err != nil || a == nil {
			return
		}
		b, err := parse(over, newSource("", ""))
		if err != nil || b == nil {
			return
		}
		textA, textB := emit(a), emit(b)
		both := overlay(a, b, Keys())
		if !bytes.Equal(emit(a), textA) || !bytes.Equal(emit(b), textB) {
			t.Fatal("merging changed a layer")
		}
		if plain := overlay(a, b, nil); b.Kind == Map && a.Kind == Map {
			for _, e := range b.Entries { // every key of the upper layer is there
				if both.Lookup(e.Key.Text) == nil || plain.Lookup(e.Key.Text) == nil {
					t.Fatalf("%q is lost", e.Key.Text)
				}
			}
		}
		if !yaml11.Equal(overlay(both, nil, Keys()), both) {
			t.Fatal("nothing laid over changes something")
		}
		patch(a, b)
	})
}

func FuzzDotlist(f *testing.F) {
	for _, arg := range []string{"a.b=1", "a=", "=a", "a", "a..b=1", "aws.labels={a: b}", "aws.vpc_name=a=b", "a=[", "a=*x", "a=|\n x", "a = b ", ".=1", "a.b=# c"} {
		f.Add(arg)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		n, problem := dotlist(arg)
		if problem != nil {
			if problem.Text == "" {
				t.Fatal("a problem without words")
			}
			return
		}
		if n.Kind != Map || len(n.Entries) != 1 {
			t.Fatalf("%q gives %s", arg, emit(n))
		}
		validate(n, Client)
	})
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte("api_server:\n  endpoint: a # b\n"))
	f.Add([]byte("api_server: {endpoint: a}\n"))
	f.Add([]byte(manyPlaces))
	f.Fuzz(func(t *testing.T, text []byte) {
		v := fromPlain("http://x", yaml11.Place{})
		if out, err := yaml11.Set(text, endpoint, v); err == nil {
			n, err := parse(out, newSource("", ""))
			if err != nil || asText(n.Find(endpoint...)) != "http://x" {
				t.Fatalf("%v: %q", err, out)
			}
		}
		yaml11.Unset(text, endpoint)
	})
}
