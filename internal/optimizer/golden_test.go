package optimizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// shared is the folder of measured answers and price lists, beside the repo.
const shared = "../../../shared"

// goldenLacks is what the ten clouds of the measurement cannot do.
func goldenLacks() map[string]map[cloud.Feature]string {
	lacks := map[string][]cloud.Feature{
		"aws":        {},
		"azure":      {cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"gcp":        {cloud.FeatureLocalDisk},
		"ibm":        {cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeaturePorts, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"lambda":     {cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"scp":        {cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"oci":        {cloud.FeatureDocker, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"runpod":     {cloud.FeatureMultiNode, cloud.FeatureDiskTier, cloud.FeatureStorage, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"cudo":       {cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDocker, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
		"fluidstack": {cloud.FeatureSpot, cloud.FeatureImage, cloud.FeatureDiskTier, cloud.FeatureNetTier, cloud.FeatureLocalDisk},
	}
	out := map[string]map[cloud.Feature]string{}
	for c, features := range lacks {
		out[c] = map[cloud.Feature]string{}
		for _, f := range features {
			out[c][f] = "no " + string(f)
		}
	}
	return out
}

var goldenClouds = []string{"aws", "azure", "gcp", "ibm", "lambda", "scp", "oci", "runpod", "cudo", "fluidstack"}

var loadGolden = sync.OnceValues(func() ([]Source, error) {
	lacks := goldenLacks()
	var sources []Source
	for _, c := range goldenClouds {
		text, err := os.ReadFile(filepath.Join(shared, "catalogs/v5", c, "vms.csv"))
		if err != nil {
			return nil, err
		}
		t, err := catalog.Load(c, text, catalog.Options{})
		if err != nil {
			return nil, err
		}
		if text, err := os.ReadFile(filepath.Join(shared, "catalogs/v5", c, "images.csv")); err == nil {
			if t.Images, err = catalog.LoadImages(text); err != nil {
				return nil, err
			}
		}
		sources = append(sources, CatalogSource(t, lacks[c]))
	}
	return sources, nil
})

func goldenSources(t testing.TB) []Source {
	t.Helper()
	s, err := loadGolden()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the shared price lists are not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type golden struct {
	ID       string          `json:"id"`
	Request  json.RawMessage `json:"request"`
	NumNodes int             `json:"num_nodes"`
	Answer   struct {
		Status  string `json:"status"`
		Phase   string `json:"phase"`
		Class   string `json:"error_class"`
		Message string `json:"error_message"`
		Chosen  struct {
			Cloud, Region, Zone string
			InstanceType        string             `json:"instance_type"`
			Accelerators        map[string]float64 `json:"accelerators"`
			UseSpot             bool               `json:"use_spot"`
			HourlyCost          float64            `json:"hourly_cost"`
			Total               float64            `json:"total_hourly_cost"`
		} `json:"chosen"`
		PlanTable []struct {
			Infra, Instance, VCPUs string
			MemGB                  string `json:"mem_gb"`
			GPUs, Cost             string
			Chosen                 bool
		} `json:"plan_table"`
		Launchables [][]any `json:"launchables"`
	} `json:"answer"`
	Tie struct {
		StableSortDiffers []string `json:"stable_sort_differs"`
	} `json:"tie"`
}

func readGolden[T any](t testing.TB, env, name string) []T {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		path = filepath.Join(shared, "goldens", name)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the measured answers are not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// tableRows gives the cells of the table of considered resources.
func tableRows(tp *TaskPlan, target Target) []string {
	var rows []string
	for _, c := range tp.Best() {
		row := strings.Join(append(tp.cells(c), metric(target, c.Cost, c.Time)), "|")
		if c.rank == tp.Chosen.rank {
			row += "|chosen"
		}
		rows = append(rows, row)
	}
	return rows
}

// differences are the answers that ours do not equal, and why.
type differences struct {
	Rules map[string]string `json:"rules"`
	Cases map[string]string `json:"cases"`
}

func readDifferences(t *testing.T, name string) differences {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var d differences
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for id, rule := range d.Cases {
		if d.Rules[rule] == "" {
			t.Errorf("%s: case %s names an unknown rule %q", name, id, rule)
		}
	}
	return d
}

// score counts comparisons; a difference that is not listed, and a listed one
// that is none, are failures.
type score struct {
	t                         *testing.T
	known                     differences
	matched, explained, wrong int
}

func (s *score) add(id, context, diff string) {
	s.t.Helper()
	rule, listed := s.known.Cases[id]
	switch {
	case diff == "" && listed:
		s.wrong++
		s.t.Errorf("%s: listed as different (%s) but equal", id, rule)
	case diff == "":
		s.matched++
	case listed:
		s.explained++
	default:
		s.wrong++
		s.t.Errorf("%s %s: %s", id, context, diff)
	}
}

func (s *score) log(name string) {
	s.t.Logf("%s: matched %d, explained %d, wrong %d", name, s.matched, s.explained, s.wrong)
}

func TestGolden(t *testing.T) {
	sources := goldenSources(t)
	s := score{t: t, known: readDifferences(t, "differences.json")}
	for _, g := range readGolden[golden](t, "SKY_OPTIMIZER_GOLDENS", "optimizer.jsonl") {
		diff := compareGolden(t, sources, &g)
		s.add(g.ID, fmt.Sprintf("%s x%d", g.Request, g.NumNodes), diff)
		if diff != "" {
			s.verify(&g, sources)
		}
	}
	s.log("single tasks")
}

// verify checks what a rule claims, where that can be computed.
func (s *score) verify(g *golden, sources []Source) {
	s.t.Helper()
	tk, err := goldenTask(g)
	if err != nil {
		return
	}
	plan, err := Optimize(Problem{Dag: &task.Dag{Tasks: []*task.Task{tk}}, Sources: sources})
	if err != nil {
		return
	}
	cost, ref := plan.Cost, g.Answer.Chosen.Total
	switch s.known.Cases[g.ID] {
	case "smaller-machine":
		if cost >= ref {
			s.t.Errorf("%s: ours costs $%v, not less than $%v", g.ID, cost, ref)
		}
	case "other-family":
		if g.Answer.Status == "ok" {
			s.t.Errorf("%s: the reference finds %s", g.ID, g.Answer.Chosen.InstanceType)
		}
	case "tie":
		if math.Abs(cost-ref) > 1e-6 || len(g.Tie.StableSortDiffers) == 0 {
			s.t.Errorf("%s: ours costs $%v, the reference $%v: no tie", g.ID, cost, ref)
		}
	case "unpriced-last":
		if ref != 0 || cost <= 0 {
			s.t.Errorf("%s: ours costs $%v, the reference $%v: nothing unpriced", g.ID, cost, ref)
		}
	}
}

func compareGolden(t *testing.T, sources []Source, g *golden) string {
	tk, err := goldenTask(g)
	if err != nil {
		if g.Answer.Status == "ok" {
			return "should parse: " + err.Error()
		}
		return ""
	}
	plan, err := Optimize(Problem{Dag: &task.Dag{Tasks: []*task.Task{tk}}, Sources: sources})
	if g.Answer.Status != "ok" {
		if err == nil {
			return fmt.Sprintf("should fail (%s) but chose %s", g.Answer.Class, show(&plan.Tasks[0].Chosen))
		}
		return ""
	}
	if err != nil {
		return "should work: " + err.Error()
	}
	tp := &plan.Tasks[0]
	var diffs []string
	got, want := &tp.Chosen.Offer, &g.Answer.Chosen
	if catalog.DisplayName(got.Cloud) != want.Cloud || got.Region != want.Region || got.Zone != want.Zone || got.InstanceType != want.InstanceType ||
		got.Spot != want.UseSpot || acceleratorText(got.Accelerators) != acceleratorText(want.Accelerators) || fmt.Sprintf("%.4f", got.HourlyPrice) != fmt.Sprintf("%.4f", want.HourlyCost) {
		diffs = append(diffs, fmt.Sprintf("chose %s %v $%.4f, want %s/%s/%s %s %v %v $%.4f", show(&tp.Chosen), got.Accelerators, got.HourlyPrice, want.Cloud, want.Region, want.Zone, want.InstanceType, want.Accelerators, want.UseSpot, want.HourlyCost))
	}
	var rows []string
	for _, r := range g.Answer.PlanTable {
		row := strings.Join([]string{r.Infra, r.Instance, r.VCPUs, r.MemGB, r.GPUs, r.Cost}, "|")
		if r.Chosen {
			row += "|chosen"
		}
		rows = append(rows, row)
	}
	if a, b := strings.Join(tableRows(tp, Cost), "\n\t"), strings.Join(rows, "\n\t"); a != b {
		diffs = append(diffs, fmt.Sprintf("table\n\t%s\nwant\n\t%s", a, b))
	}
	have := map[string]float64{}
	for i := range tp.Candidates {
		c := &tp.Candidates[i]
		o := &c.Offer
		have[fmt.Sprintf("%s|%s|%s|%s|%s|%v", catalog.DisplayName(o.Cloud), o.Region, o.Zone, o.InstanceType, strings.Trim(acceleratorText(o.Accelerators), "-"), o.Spot)] = c.Cost
	}
	missing, first := 0, ""
	for _, l := range g.Answer.Launchables {
		str := func(v any) string { s, _ := v.(string); return s }
		key := fmt.Sprintf("%s|%s|%s|%s|%s|%v", l[0], str(l[1]), str(l[2]), str(l[3]), str(l[4]), l[5])
		cost, ok := have[key]
		if ref, _ := l[6].(float64); !ok || math.Abs(cost-ref) > 1e-4 {
			missing++
			if first == "" {
				first = fmt.Sprintf("%s %v (ours %v)", key, ref, cost)
			}
		}
	}
	if missing > 0 {
		diffs = append(diffs, fmt.Sprintf("%d of %d launchables are missing, such as %s", missing, len(g.Answer.Launchables), first))
	}
	return strings.Join(diffs, "; ")
}

// The table that the API's clients print, byte for byte.
func TestGoldenTable(t *testing.T) {
	sources := goldenSources(t)
	text, err := os.ReadFile(filepath.Join(shared, "goldens/http/dryrun_a100.out"))
	if err != nil {
		t.Skip("the recorded sessions are not here: ", err)
	}
	_, after, _ := strings.Cut(string(text), "Considered")
	before, _, _ := strings.Cut(after, "Dryrun")
	plan, err := Optimize(Problem{Dag: one(want("A100", 8)), Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	plan.Table(&b, true, 0)
	if got := b.String(); got != "Considered"+before {
		t.Errorf("got\n%s\nwant\nConsidered%s", got, before)
	}
}
