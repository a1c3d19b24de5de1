package catalog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

var recordedClouds = []string{"aws", "azure", "gcp", "ibm", "lambda", "scp", "oci", "runpod", "cudo", "fluidstack"}

// recorded finds the return value of a request in a recorded session.
func recorded(t *testing.T, session, holds string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(shared, "goldens/http", session+".jsonl"))
	if os.IsNotExist(err) {
		t.Skip("the recorded sessions are not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var exchange struct {
			Body string `json:"resp_body"`
		}
		var answer struct {
			Value string `json:"return_value"`
		}
		if json.Unmarshal(lines.Bytes(), &exchange) == nil && json.Unmarshal([]byte(exchange.Body), &answer) == nil && strings.Contains(answer.Value, holds) {
			return answer.Value
		}
	}
	t.Fatalf("no exchange of %s holds %q", session, holds)
	return ""
}

// keys lists the names of a JSON object in order.
func keys(t *testing.T, object string) []string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	var out []string
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k.(string))
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The answer on the wire: the same names in the same order, the same ten
// fields, in the same order of rows.
func TestListOnTheWire(t *testing.T) {
	want := recorded(t, "gpus_A100", "gpu_1x_a100")
	got, err := json.Marshal(List(goldenTables(t, recordedClouds), ListQuery{Name: "A100"}))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := keys(t, string(got)), keys(t, want); !slices.Equal(a, b) {
		t.Errorf("names %v, want %v", a, b)
	}
	var a, b map[string][][]any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	for name := range b {
		if len(a[name]) != len(b[name]) {
			t.Errorf("%s: %d rows, want %d", name, len(a[name]), len(b[name]))
			continue
		}
		for i := range b[name] {
			if !sameRow(a[name][i], b[name][i]) {
				t.Errorf("%s: %v, want %v", name, a[name][i], b[name][i])
			}
		}
	}
	if !bytes.Contains(got, []byte(`"gpu_1x_a100","A100",1.0,30.0,40.0,200.0,1.29,null,`)) {
		t.Error("numbers are not written as clients know them")
	}
}

// A price that is not known is neither $0 nor the first.
func TestUnknownPricesOnTheWire(t *testing.T) {
	got, err := json.Marshal(Listings{{Name: "H100", Items: []ListItem{
		{Cloud: "Azure", Accelerator: "H100", Count: 1, Price: 0, SpotPrice: 0, Region: "eastus"},
		{Cloud: "Azure", Accelerator: "H100", Count: 2, Price: none, SpotPrice: none, Region: "eastus"},
		{Cloud: "Azure", Accelerator: "H100", Count: 8, Price: 98.5, SpotPrice: 0, Region: "eastus"},
		{Cloud: "Azure", Accelerator: "H100", Count: 4, Price: 99.5, SpotPrice: 9.5, Region: "eastus"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var rows map[string][][]any
	if err := json.Unmarshal(got, &rows); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, r := range rows["H100"] {
		said = append(said, fmt.Sprint(r[3], " ", r[7], " ", r[8]))
	}
	if want := []string{"8 98.5 <nil>", "4 99.5 9.5", "1 <nil> <nil>", "2 <nil> <nil>"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

// sameRow compares fields; the case of a cloud's name and the last digits of
// sums do not matter.
func sameRow(a, b []any) bool {
	return slices.EqualFunc(a, b, func(x, y any) bool {
		switch x := x.(type) {
		case float64:
			n, ok := y.(float64)
			return ok && math.Abs(x-n) < 1e-6
		case string:
			s, ok := y.(string)
			return ok && strings.EqualFold(x, s)
		}
		return x == y
	})
}

func TestCountsOnTheWire(t *testing.T) {
	want := recorded(t, "gpus_list", `"A100":[1.0`)
	got, err := json.Marshal(Counts(goldenTables(t, recordedClouds), ListQuery{}))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got  %.600s\nwant %.600s", got, want)
	}
}

// The rows of "gpus list A100" as they were printed.
// A query over tens of thousands of rows allocates for its answer only.
func TestSelectAllocatesNothingPerRow(t *testing.T) {
	table := goldenTables(t, []string{"aws"})[0]
	n := testing.AllocsPerRun(20, func() {
		sel := table.Select(Query{CPUs: Amount{N: 4, AtLeast: true}})
		if sel.Len() < 500 {
			t.Fatal(sel.Len())
		}
		sel.Each(func(*cloud.Offer) {})
	})
	if n > 20 {
		t.Errorf("%v allocations", n)
	}
}
