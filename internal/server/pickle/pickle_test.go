package pickle

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The strings are those that real clients were seen to accept.
func TestExactBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want string // base64
	}{
		{"None", nil, None},
		{"an enum member", Call{Global{"sky.utils.status_lib", "ClusterStatus"}, Tuple{"STOPPED"}},
			"gARYFAAAAHNreS51dGlscy5zdGF0dXNfbGliWA0AAABDbHVzdGVyU3RhdHVzkyhYBwAAAFNUT1BQRUR0Ui4="},
		{"True", true, b64("\x80\x04\x88.")},
		{"False", false, b64("\x80\x04\x89.")},
		{"small int", 258, b64("\x80\x04J\x02\x01\x00\x00.")},
		{"negative int", -1, b64("\x80\x04J\xff\xff\xff\xff.")},
		{"large int", int64(1) << 40, b64("\x80\x04\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00.")},
		{"float", 1.5, b64("\x80\x04G\x3f\xf8\x00\x00\x00\x00\x00\x00.")},
		{"str", "é", b64("\x80\x04X\x02\x00\x00\x00\xc3\xa9.")},
		{"empty tuple", Tuple{}, b64("\x80\x04).")},
		{"tuple", Tuple{nil}, b64("\x80\x04(Nt.")},
		{"empty list", []any{}, b64("\x80\x04].")},
		{"list", []any{nil, true}, b64("\x80\x04](N\x88e.")},
		{"empty dict", Dict{}, b64("\x80\x04}.")},
		{"dict", Dict{{"a", nil}}, b64("\x80\x04}(X\x01\x00\x00\x00aNu.")},
		{"map keys are sorted", map[string]any{"b": nil, "a": nil}, b64("\x80\x04}(X\x01\x00\x00\x00aNX\x01\x00\x00\x00bNu.")},
		{"object", Object{Global{"m", "C"}, nil}, b64("\x80\x04X\x01\x00\x00\x00mX\x01\x00\x00\x00C\x93)\x81Nb.")},
		{"json int", json.Number("3"), b64("\x80\x04J\x03\x00\x00\x00.")},
		{"json float", json.Number("1.5"), b64("\x80\x04G\x3f\xf8\x00\x00\x00\x00\x00\x00.")},
		{"broken UTF-8 is replaced", "\xff", b64("\x80\x04X\x03\x00\x00\x00\xef\xbf\xbd.")},
	} {
		if got, err := Base64(c.v); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestRefusals(t *testing.T) {
	cycle := []any{nil}
	cycle[0] = cycle
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"a type it does not know", struct{}{}, "cannot write a struct {}"},
		{"inside a dict it names the key", Dict{{"k", struct{}{}}}, "k: pickle: cannot write"},
		{"a cycle", cycle, "nested deeper"},
		{"a number beyond 64 bits", json.Number("123456789012345678901234567890"), "64 bits"},
		{"no number at all", json.Number("x"), "invalid syntax"},
	} {
		if _, err := Encode(c.v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// python loads a pickle with stand-ins for the classes that clients have, and
// prints what it got as JSON.
const python = `
import base64, json, pickle, sys, types
class Handle:
    def __setstate__(self, s): self.state = s
class Resources:
    @classmethod
    def _from_yaml_config_single(cls, config): r = cls(); r.config = config; return r
m = types.ModuleType('sky'); m.Handle = Handle; m.Resources = Resources
sys.modules['sky'] = m
def plain(v):
    if isinstance(v, Handle): return {'handle': plain(v.state)}
    if isinstance(v, Resources): return {'resources': plain(v.config)}
    if isinstance(v, tuple): return {'tuple': [plain(x) for x in v]}
    if isinstance(v, list): return [plain(x) for x in v]
    if isinstance(v, dict): return {k: plain(x) for k, x in v.items()}
    return v
for line in sys.stdin:
    print(json.dumps(plain(pickle.loads(base64.b64decode(line)))))
`

func load(t rapid.TB, values ...any) []string {
	t.Helper()
	exe, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, so nobody can read the pickles back")
	}
	var in strings.Builder
	for _, v := range values {
		s, err := Base64(v)
		if err != nil {
			t.Fatal(err)
		}
		in.WriteString(s + "\n")
	}
	cmd := exec.Command(exe, "-c", python)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestPythonReadsIt(t *testing.T) {
	handle := Object{Global{"sky", "Handle"}, Dict{
		{"cluster_name", "c"},
		{"launched_resources", Call{Global{"sky", "Resources._from_yaml_config_single"}, Tuple{map[string]any{"infra": "aws/us-east-1"}}}},
		{"ips", []any{Tuple{"10.0.0.1", "1.2.3.4"}}},
		{"n", int64(math.MaxInt64)}, {"f", 0.25}, {"neg", int64(math.MinInt64)},
	}}
	want := `{"handle": {"cluster_name": "c", "launched_resources": {"resources": {"infra": "aws/us-east-1"}}, ` +
		`"ips": [{"tuple": ["10.0.0.1", "1.2.3.4"]}], "n": 9223372036854775807, "f": 0.25, "neg": -9223372036854775808}}`
	if got := load(t, handle)[0]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Whatever JSON can say survives the way through a pickle.
func TestPythonReadsAnyJSON(t *testing.T) {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.StringN(0, 8, 20).AsAny(),
		rapid.Int64().AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny())
	var node func(depth int) *rapid.Generator[any]
	node = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf, rapid.SliceOfN(node(depth-1), 0, 4).AsAny(),
			rapid.MapOfN(rapid.StringN(0, 5, 10), node(depth-1), 0, 4).AsAny())
	}
	var values []any
	rapid.Check(t, func(t *rapid.T) { values = append(values, node(3).Draw(t, "value")) })
	for i, line := range load(t, values...) {
		want, _ := json.Marshal(values[i])
		var a, b any
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(want, &b)
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) != string(y) {
			t.Errorf("got %s, want %s", x, y)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	v := Object{Global{"sky", "Handle"}, Dict{{"cluster_name", "c"}, {"launched_nodes", 1},
		{"launched_resources", Call{Global{"sky", "R"}, Tuple{map[string]any{"infra": "aws", "cpus": "4"}}}}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Base64(v); err != nil {
			b.Fatal(err)
		}
	}
}
