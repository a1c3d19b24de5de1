package optimizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// reservable is a price list with a cheap and a dear region.
func reservable(t *testing.T, name string) []Source {
	t.Helper()
	const list = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
big,A100,8,96,1152,,30,10,east-1,east-1a
big,A100,8,96,1152,,30,10,east-1,east-1b
big,A100,8,96,1152,,40,15,west-1,west-1a
big,A100,8,96,1152,,40,15,west-1,west-1b
other,A100,8,96,1152,,45,20,west-1,west-1a
`
	table, err := catalog.Load(name, []byte(list), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return []Source{CatalogSource(table, nil)}
}

func inZone(zone string, free int) cloud.Reservation {
	return cloud.Reservation{Place: cloud.Place{Cloud: "aws", Region: zone[:len(zone)-1], Zone: zone}, InstanceType: "big", Free: free}
}

func TestPlansGoWhereReservationsHaveRoom(t *testing.T) {
	near := func(r cloud.Reservation, use cloud.NearUse) cloud.Reservation { r.Near = use; return r }
	attached := inZone("west-1a", 9)
	attached.Accelerators = map[string]float64{"T4": 1}
	spot := true
	for _, tt := range []struct {
		name     string
		nodes    int
		have     []cloud.Reservation
		request  task.Resources
		want     string // region/zone
		cost     float64
		reserved int
	}{
		{"none", 1, nil, task.Resources{}, "east-1/", 30, 0},
		{"the dearer region", 2, []cloud.Reservation{inZone("west-1b", 2)}, task.Resources{}, "west-1/west-1b", 0, 2},
		{"several in a zone", 2, []cloud.Reservation{inZone("west-1b", 1), inZone("west-1b", 1)}, task.Resources{}, "west-1/west-1b", 0, 2},
		{"zones apart", 2, []cloud.Reservation{inZone("west-1a", 1), inZone("west-1b", 1)}, task.Resources{}, "west-1/west-1a", 40, 1},
		{"fewer than nodes, and still cheaper", 3, []cloud.Reservation{inZone("west-1b", 1)}, task.Resources{}, "west-1/west-1b", 80, 1},
		{"fewer than nodes, and dearer", 5, []cloud.Reservation{inZone("west-1b", 1)}, task.Resources{}, "east-1/", 150, 0},
		{"used up", 1, []cloud.Reservation{inZone("west-1b", 0)}, task.Resources{}, "east-1/", 30, 0},
		{"of a zone that there is not", 1, []cloud.Reservation{inZone("west-1z", 5)}, task.Resources{}, "east-1/", 30, 0},
		{"of another region than asked for", 1, []cloud.Reservation{inZone("west-1b", 5)}, task.Resources{Region: "east-1"}, "east-1/", 30, 0},
		{"of another zone than asked for", 1, []cloud.Reservation{inZone("west-1b", 5)}, task.Resources{Zone: "west-1a"}, "west-1/west-1a", 40, 0},
		{"of a size that is too small", 1, []cloud.Reservation{inZone("west-1b", 5)}, task.Resources{InstanceType: "other"}, "west-1/", 45, 0},
		{"with other accelerators", 1, []cloud.Reservation{attached}, task.Resources{}, "east-1/", 30, 0},
		{"spot", 1, []cloud.Reservation{inZone("west-1b", 5)}, task.Resources{UseSpot: &spot}, "east-1/east-1a", 10, 0},
		{"a whole cluster with a fast network", 2, []cloud.Reservation{near(inZone("west-1b", 2), cloud.NearWhole)}, task.Resources{NetworkTier: "best"}, "west-1/west-1b", 0, 2},
		{"not a whole cluster with a fast network", 3, []cloud.Reservation{near(inZone("west-1b", 2), cloud.NearWhole)}, task.Resources{NetworkTier: "best"}, "east-1/", 90, 0},
		{"a part of one", 3, []cloud.Reservation{inZone("west-1b", 2)}, task.Resources{NetworkTier: "best"}, "west-1/west-1b", 40, 2},
		{"none of one", 3, []cloud.Reservation{near(inZone("west-1b", 9), cloud.NearNone)}, task.Resources{NetworkTier: "best"}, "east-1/", 90, 0},
		{"one node needs nothing near it", 1, []cloud.Reservation{near(inZone("west-1b", 9), cloud.NearNone)}, task.Resources{NetworkTier: "best"}, "west-1/west-1b", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.request.InstanceType == "" {
				tt.request.Accelerators = []task.Accelerator{{Name: "A100", Count: 8}}
			}
			p := Problem{Dag: one(tt.request), Sources: reservable(t, "aws"), Reservations: tt.have}
			p.Dag.Tasks[0].NumNodes = tt.nodes
			plan, err := Optimize(p)
			if err != nil {
				t.Fatal(err)
			}
			c := &plan.Tasks[0].Chosen
			if got := c.Offer.Region + "/" + c.Offer.Zone; got != tt.want || plan.Cost != tt.cost || c.Reserved() != tt.reserved {
				t.Errorf("%s for $%v, %d reserved", got, plan.Cost, c.Reserved())
			}
			// Other zones and machines are as they are without reservations.
			p.Reservations = nil
			without, err := Optimize(p)
			if err != nil {
				t.Fatal(err)
			}
			others := func(all []Candidate) (out []string) {
				for _, c := range all {
					if c.Offer.PaidShare == 0 {
						out = append(out, fmt.Sprint(c.Offer.Place, c.Offer.InstanceType, c.Cost))
					}
				}
				return out
			}
			if a, b := others(plan.Tasks[0].Candidates), others(without.Tasks[0].Candidates); !slices.Equal(a, b) && tt.request.Zone == "" {
				t.Errorf("others: %q, want %q", a, b)
			}
			var table strings.Builder
			plan.Table(&table, false, 0)
			want := fmt.Sprintf("AWS (%s), big: %d of %s on reserved machines, which are paid for already and not in the cost.", c.Offer.Zone, tt.reserved, countNodes(tt.nodes))
			if strings.Contains(table.String(), want) != (tt.reserved > 0) || tt.reserved == 0 && strings.Contains(table.String(), "reserved") {
				t.Errorf("the table:\n%s", table.String())
			}
		})
	}
}

// Tasks of a chain can use the same machines one after the other, tasks that run at the same
// time cannot.
func TestTasksShareReservations(t *testing.T) {
	tasks := func(nodes ...int) (all []*task.Task) {
		for i, n := range nodes {
			all = append(all, &task.Task{Name: fmt.Sprint("t", i), NumNodes: n, Resources: []task.Resources{want("A100", 8)}})
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		how    task.Execution
		nodes  []int
		have   []cloud.Reservation
		region string // of all; "": they differ
		cost   float64
		paid   []int // nodes that are reserved
	}{
		{"a chain", task.Serial, []int{2, 2}, []cloud.Reservation{inZone("west-1b", 2)}, "west-1", 0, []int{2, 2}},
		{"side by side by depends_on", task.Serial, []int{1, 1}, []cloud.Reservation{inZone("west-1b", 1)}, "", 30, []int{1, 0}},
		{"side by side, and cheaper", task.Parallel, []int{1, 1}, []cloud.Reservation{inZone("west-1b", 1)}, "west-1", 40, []int{1, 0}},
		{"side by side, a part each", task.Parallel, []int{2, 2}, []cloud.Reservation{inZone("west-1b", 3)}, "west-1", 40, []int{2, 1}},
		{"side by side, and dearer", task.Parallel, []int{1, 1, 1, 1, 1}, []cloud.Reservation{inZone("west-1b", 1)}, "east-1", 150, []int{0, 0, 0, 0, 0}},
		{"side by side, in the region that has enough", task.Parallel, []int{1, 1}, []cloud.Reservation{inZone("west-1b", 2), inZone("east-1b", 1)}, "west-1", 0, []int{1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Problem{Dag: &task.Dag{Execution: tt.how, Tasks: tasks(tt.nodes...)}, Sources: reservable(t, "aws"), Reservations: tt.have}
			if strings.HasSuffix(tt.name, "depends_on") {
				for _, one := range p.Dag.Tasks {
					one.DependsOn = []string{}
				}
			}
			before := slices.Clone(tt.have)
			plan, err := Optimize(p)
			if err != nil {
				t.Fatal(err)
			}
			var paid []int
			for i := range plan.Tasks {
				c := &plan.Tasks[i].Chosen
				if paid = append(paid, c.Reserved()); tt.region != "" && c.Offer.Region != tt.region {
					t.Errorf("task %d is in %s", i, c.Offer.Region)
				}
				for _, a := range Explain(p, plan, i) { // counts the same machines
					if a.Why == Chosen && math.Round(a.Offer.PaidShare*float64(c.NumNodes)) != float64(c.Reserved()) {
						t.Errorf("task %d is explained with %v reserved", i, a.Offer.PaidShare)
					}
				}
			}
			if plan.Cost != tt.cost || !slices.Equal(paid, tt.paid) {
				t.Errorf("$%v, reserved %v", plan.Cost, paid)
			}
			if !slices.EqualFunc(before, tt.have, func(a, b cloud.Reservation) bool { return a.Free == b.Free }) {
				t.Errorf("the problem has changed: %v", tt.have)
			}
		})
	}
}

// Where machines are rented in zones anyway, a reservation adds no candidates.
func TestReservationsOfACloudOfZones(t *testing.T) {
	r := inZone("west-1b", 1)
	r.Place.Cloud = "gcp"
	p := Problem{Dag: one(want("A100", 8)), Sources: reservable(t, "gcp"), Reservations: []cloud.Reservation{r}}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	if c := plan.Tasks[0].Candidates; len(c) != 5 || c[0].Offer.Zone != "west-1b" || c[0].Cost != 0 {
		t.Errorf("%+v", c)
	}
}
