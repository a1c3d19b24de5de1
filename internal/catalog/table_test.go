package catalog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func load(t testing.TB, cloud, text string, o Options) *Table {
	t.Helper()
	table, err := Load(cloud, []byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// brief writes offers as "type region[/zone] price".
func brief(t *Table, q Query) string {
	var out []string
	for _, o := range t.Find(q) {
		where := o.Region
		if o.Zone != "" {
			where += "/" + o.Zone
		}
		out = append(out, fmt.Sprintf("%s %s %v", o.InstanceType, where, o.HourlyPrice))
	}
	return strings.Join(out, ", ")
}

const awsList = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
m6i.2xlarge,,,8,32,,0.40,0.10,eu-west-1,euw1-az1
m6i.2xlarge,,,8,32,,0.38,0.12,us-east-1,use1-az1
m6i.2xlarge,,,8,32,,0.38,0.11,us-east-1,use1-az2
m6i.2xlarge,,,8,32,,0.30,,ap-south-1,aps1-az1
m6i.4xlarge,,,16,64,,0.77,,us-east-1,use1-az1
t3.2xlarge,,,8,32,,0.20,,us-east-1,use1-az1
p4d.24xlarge,A100,8,96,1152,"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}]}",32.77,10,us-east-1,use1-az1
p4d.24xlarge,A100,8,96,1152,"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}]}",,,us-west-2,usw2-az1
`

func TestFind(t *testing.T) {
	table := load(t, "aws", awsList, Options{})
	tests := []struct {
		name string
		q    Query
		want string
	}{
		{"default size, preferred families, home regions first", Query{}, "m6i.2xlarge us-east-1 0.38, m6i.2xlarge ap-south-1 0.3, m6i.2xlarge eu-west-1 0.4, m6i.4xlarge us-east-1 0.77"},
		{"exact size", Query{CPUs: Amount{N: 16}}, "m6i.4xlarge us-east-1 0.77"},
		{"any family by name", Query{InstanceType: "t3.2xlarge"}, "t3.2xlarge us-east-1 0.2"},
		{"spot is by zone", Query{CPUs: Amount{N: 8}, Spot: true}, "m6i.2xlarge us-east-1/use1-az2 0.11, m6i.2xlarge us-east-1/use1-az1 0.12, m6i.2xlarge eu-west-1/euw1-az1 0.1"},
		{"zones on request", Query{CPUs: Amount{N: 8}, Zones: []string{"USE1-AZ2"}}, "m6i.2xlarge us-east-1/use1-az2 0.38"},
		{"every zone", Query{CPUs: Amount{N: 8}, Regions: []string{"us-east-1"}, EachZone: true}, "m6i.2xlarge us-east-1/use1-az1 0.38, m6i.2xlarge us-east-1/use1-az2 0.38"},
		{"accelerator in any case", Query{Accelerator: "a100", Count: 8}, "p4d.24xlarge us-east-1 32.77"},
		{"accelerator, wrong count", Query{Accelerator: "A100", Count: 4}, ""},
		{"accelerator, any count", Query{Accelerator: "A100"}, "p4d.24xlarge us-east-1 32.77"},
		{"price cap", Query{CPUs: Amount{N: 8}, MaxHourly: 0.35}, "m6i.2xlarge ap-south-1 0.3"},
		{"unknown region", Query{Regions: []string{"mars"}}, ""},
		{"memory per vCPU", Query{CPUs: Amount{N: 8}, Memory: Amount{N: 8, PerCPU: true}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := brief(table, tt.q); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if table.Report.Unpriced != 1 || table.Report.Skipped != 0 || table.Report.Rows != 7 {
		t.Errorf("report: %+v", table.Report)
	}
}

func TestSchemas(t *testing.T) {
	tests := []struct{ name, header, row string }{
		{"v5, lambda", "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice", "x,A10,1.0,30.0,200.0,0.75,r1,A10,"},
		{"v8, aws", "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch,LocalDiskType,NVMeSupported,LocalDiskSize,LocalDiskCount", "x,A10,1,30,200,A10,0.75,,r1,z1,x86_64,ssd,True,100,2"},
		{"other order", "Region,Price,InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB", "r1,0.75,x,A10,1,30,200"},
		{"windows line ends and a mark", "\ufeffInstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region\r", "x,A10,1,30,200,0.75,r1\r"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := load(t, "lambda", tt.header+"\n"+tt.row+"\n", Options{})
			got := table.Find(Query{Accelerator: "A10", Count: 1})
			if len(got) != 1 || got[0].CPUs != 30 || got[0].MemoryGiB != 200 || got[0].HourlyPrice != 0.75 || got[0].Region != "r1" {
				t.Errorf("got %+v, report %+v", got, table.Report)
			}
		})
	}
	table := load(t, "aws", tests[1].header+"\n"+tests[1].row+"\n", Options{})
	for want, n := range map[string]int{"nvme:200": 1, "nvme:100+": 1, "ssd:150+": 1, "nvme:300+": 0, "nvme:100": 0} {
		if got := len(table.Find(Query{Accelerator: "A10", LocalDisk: want})); got != n {
			t.Errorf("local disk %s: %d offers, want %d", want, got, n)
		}
	}
}

func TestMalformedRows(t *testing.T) {
	text := "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region\n" +
		"good,,,8,32,0.4,r1\n" +
		"short,,,8\n" +
		"words,,,eight,32,0.4,r1\n" +
		"price,,,8,32,cheap,r1\n" +
		"nowhere,,,8,32,0.4,nan\n" +
		",,,8,32,0.4,r1\n" +
		"none,A100,,8,32,0.4,r1\n" +
		"good,,,8,32,0.5,r2\n"
	table := load(t, "lambda", text, Options{})
	var lines []int
	for _, p := range table.Report.Problems {
		lines = append(lines, p.Line)
	}
	if want := []int{3, 4, 5, 6, 7, 8}; !slices.Equal(lines, want) || table.Report.Skipped != 6 || table.Report.Rows != 2 {
		t.Errorf("problems in lines %v, want %v; report %+v", lines, want, table.Report)
	}
	for _, bad := range []string{"", "a,b\n1,2\n"} {
		if _, err := Load("aws", []byte(bad), Options{}); err == nil {
			t.Errorf("%q was accepted as a price list", bad)
		}
	}
}

func TestOptions(t *testing.T) {
	zones := load(t, "aws", awsList, Options{ZoneNames: map[string]string{"use1-az2": "us-east-1c"}})
	if got := brief(zones, Query{CPUs: Amount{N: 8}, Spot: true}); got != "m6i.2xlarge us-east-1/us-east-1c 0.11" {
		t.Errorf("zones of the account: %s", got)
	}
	price := 0.01
	repriced := load(t, "aws", awsList, Options{Discount: 0.5, Prices: []PriceOverride{{InstanceType: "m6i.2xlarge", Region: "EU-WEST-1", Price: &price}}})
	if got := brief(repriced, Query{CPUs: Amount{N: 8}}); got != "m6i.2xlarge us-east-1 0.19, m6i.2xlarge eu-west-1 0.01, m6i.2xlarge ap-south-1 0.15" {
		t.Errorf("own prices: %s", got)
	}
	overlay := "InstanceType,vCPUs,MemoryGiB,Price,Region\nm6i.2xlarge,8,32,0.2,us-east-1\nmine.8,8,32,0.1,home-1\n"
	merged := load(t, "aws", awsList, Options{Overlay: []byte(overlay)})
	if got := brief(merged, Query{InstanceType: "m6i.2xlarge", Regions: []string{"us-east-1"}}); got != "m6i.2xlarge us-east-1 0.2" {
		t.Errorf("corrected row: %s", got)
	}
	if got := brief(merged, Query{InstanceType: "mine.8"}); got != "mine.8 home-1 0.1" {
		t.Errorf("added row: %s", got)
	}
}

const gcpList = `InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
n1-standard-4,4,15,,,,us-central1,us-central1-a,0.19,0.04
n1-highmem-4,4,26,,,,us-central1,us-central1-a,0.24,0.05
n1-highmem-64,64,416,,,,us-central1,us-central1-a,3.79,0.8
a2-highgpu-1g,12,85,,,,us-central1,us-central1-a,0.75,0.3
,,,T4,1,T4,us-central1,us-central1-a,0.35,0.11
,,,T4,1,T4,us-central1,us-central1-b,0.35,0.11
,,,A100,1,A100,us-central1,us-central1-a,2.93,1.17
,,,tpu-v2-8,1,tpu-v2-8,us-central1,us-central1-a,4.5,1.35
,,,tpu-v2-32,1,tpu-v2-32,us-central1,us-central1-a,24,7
`

// Clouds whose machines are in one data centre each are offered a data centre at a time.
func TestZonesOfRunPod(t *testing.T) {
	list := load(t, "runpod", "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"+
		"1x_L40S_SECURE,L40S,1,16,62,,0.86,,NL,EU-NL-1\n1x_L40S_SECURE,L40S,1,16,62,,0.86,,IS,EUR-IS-1\n1x_L40S_SECURE,L40S,1,16,62,,0.86,,IS,EUR-IS-2\n", Options{})
	if got, want := brief(list, Query{Accelerator: "L40S", Count: 1}), "1x_L40S_SECURE IS/EUR-IS-1 0.86, 1x_L40S_SECURE IS/EUR-IS-2 0.86, 1x_L40S_SECURE NL/EU-NL-1 0.86"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestGCP(t *testing.T) {
	table := load(t, "gcp", gcpList, Options{})
	tests := []struct {
		name string
		q    Query
		want string
	}{
		{"a host of the default size", Query{Accelerator: "T4", Count: 1}, "n1-highmem-4 us-central1/us-central1-a 0.59"},
		{"a smaller host on request", Query{Accelerator: "T4", Count: 1, Memory: Amount{N: 15}}, "n1-standard-4 us-central1/us-central1-a 0.54"},
		{"a host too large for one GPU", Query{Accelerator: "T4", Count: 1, CPUs: Amount{N: 64}}, ""},
		{"a named host", Query{InstanceType: "n1-standard-4", Accelerator: "T4", Count: 1}, "n1-standard-4 us-central1/us-central1-a 0.54"},
		{"the host alone", Query{InstanceType: "n1-standard-4"}, "n1-standard-4 us-central1/us-central1-a 0.19"},
		{"built in", Query{Accelerator: "A100", Count: 1}, "a2-highgpu-1g us-central1/us-central1-a 3.68"},
		{"built in, by the host's name", Query{InstanceType: "a2-highgpu-1g"}, "a2-highgpu-1g us-central1/us-central1-a 3.68"},
		{"spot of both", Query{Accelerator: "A100", Count: 1, Spot: true}, "a2-highgpu-1g us-central1/us-central1-a 1.47"},
		{"TPU", Query{Accelerator: "tpu-v2-8", Count: 1}, "TPU-VM us-central1/us-central1-a 4.5"},
		{"TPU behind a host that is not offered", Query{Accelerator: "tpu-v2-8", Count: 1, TPUNode: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := brief(table, tt.q); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestHostsOfTPUs(t *testing.T) {
	table := load(t, "gcp", gcpList, Options{})
	for q, hosts := range map[string]int{"tpu-v2-8": 0, "tpu-v2-32": 4} {
		if o := table.Find(Query{Accelerator: q, Count: 1}); len(o) != 1 || o[0].Hosts != hosts {
			t.Errorf("%s: %+v", q, o)
		}
	}
}

func TestImagesAndQuotas(t *testing.T) {
	images, err := LoadImages([]byte("Tag,Region,OS,OSVersion,ImageId,CreationDate\nskypilot:gpu,,ubuntu,22.04,global,20240101\nskypilot:gpu,us-east-1,ubuntu,22.04,ami-1,20240101\nskypilot:cpu,eu-west-1,ubuntu,22.04,ami-2,\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ tag, region, want string }{{"skypilot:gpu", "us-east-1", "ami-1"}, {"skypilot:gpu", "mars", "global"}, {"skypilot:cpu", "us-east-1", ""}, {"skypilot:no", "us-east-1", ""}} {
		if got, _ := images.Find(tt.tag, tt.region); got.ID != tt.want {
			t.Errorf("%s in %s: %q, want %q", tt.tag, tt.region, got.ID, tt.want)
		}
	}
	quotas, err := LoadQuotas([]byte("Accelerator,OnDemandInstanceCode,SpotInstanceCode\nA100,NVIDIA_A100_GPUS,PREEMPTIBLE_NVIDIA_A100_GPUS\n"))
	if err != nil || quotas["A100"].Spot != "PREEMPTIBLE_NVIDIA_A100_GPUS" {
		t.Errorf("quotas: %v, %v", quotas, err)
	}
}

func TestCanonicalAccelerator(t *testing.T) {
	tests := []struct {
		name    string
		offered []string
		want    string
		several int
	}{
		{"a100", nil, "A100", 0},
		{"rtx4090", nil, "RTX4090", 0},
		{"TPU-V3-8", nil, "tpu-v3-8", 0},
		{"tpu-v9-8", nil, "tpu-v9-8", 0},
		{"4090", []string{"RTX4090", "A100"}, "RTX4090", 0},
		{"V1", []string{"V100", "V100-32GB"}, "", 2},
		{"newchip", []string{"NewChip", "NewChip-2"}, "NewChip", 0},
		{"FOO", []string{"A100"}, "FOO", 0},
	}
	for _, tt := range tests {
		got, several := CanonicalAccelerator(tt.name, tt.offered)
		if got != tt.want || len(several) != tt.several {
			t.Errorf("%s: %q %v, want %q", tt.name, got, several, tt.want)
		}
	}
}

func TestMemoryRequest(t *testing.T) {
	tests := []struct {
		name, includes, excludes string
	}{
		{"80GB", "A100-80GB", "A100"},
		{"80GB+", "H200", "A100"},
		{"nvidia:80gb+", "H100", "MI300X"},
		{"amd:100GB+", "MI300X", "H200"},
	}
	for _, tt := range tests {
		r, ok := ParseMemoryRequest(tt.name)
		if !ok {
			t.Errorf("%s is not taken for memory", tt.name)
			continue
		}
		var names []string
		for _, a := range r.Accelerators() {
			names = append(names, a.Name)
		}
		if !slices.Contains(names, tt.includes) || slices.Contains(names, tt.excludes) {
			t.Errorf("%s: %v", tt.name, names)
		}
	}
	for _, name := range []string{"A100", "A100-80GB", "80", "GB", "H100:8"} {
		if _, ok := ParseMemoryRequest(name); ok {
			t.Errorf("%s is taken for memory", name)
		}
	}
}

func TestAmount(t *testing.T) {
	for _, tt := range []struct {
		text    string
		v, cpus float64
		want    bool
	}{{"8", 8, 8, true}, {"8", 9, 9, false}, {"8+", 9, 9, true}, {"8+", 7, 7, false}, {"4x", 32, 8, true}, {"4x", 31, 8, false}, {"", 1, 1, true}} {
		a, err := ParseAmount(tt.text)
		if err != nil || a.Fits(tt.v, tt.cpus) != tt.want || a.String() != tt.text {
			t.Errorf("%q (%v) fits %v: %v, %v", tt.text, a, tt.v, !tt.want, err)
		}
	}
	for _, bad := range []string{"+", "x", "eight", "-1", "8+x", "NaN", "Inf"} {
		if _, err := ParseAmount(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("aws", []byte(awsList))
	f.Add("gcp", []byte(gcpList))
	f.Add("lambda", []byte("InstanceType,Price,Region\n\"a\"\"b\nc\",1,\"r\"x\n"))
	f.Fuzz(func(t *testing.T, cloud string, text []byte) {
		table, err := Load(cloud, text, Options{})
		if err != nil {
			return
		}
		for _, q := range []Query{{}, {Spot: true}, {Accelerator: "A100"}, {EachZone: true, CPUs: Amount{N: 1, AtLeast: true}}} {
			for _, o := range table.Find(q) {
				if o.HourlyPrice < 0 || o.HourlyPrice != o.HourlyPrice {
					t.Fatalf("price %v", o.HourlyPrice)
				}
			}
		}
		List([]*Table{table}, ListQuery{Unlisted: true, AllRegions: true})
	})
}

// allLists reads every price list there is.
func allLists(b *testing.B) map[string][]byte {
	files, _ := filepath.Glob(filepath.Join(shared, "catalogs/v5/*/vms.csv"))
	if len(files) == 0 {
		b.Skip("the shared price lists are not here")
	}
	texts := map[string][]byte{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		texts[filepath.Base(filepath.Dir(f))] = text
	}
	return texts
}

func BenchmarkLoadAll(b *testing.B) {
	texts := allLists(b)
	b.ReportAllocs()
	var keep []*Table
	for b.Loop() {
		keep = keep[:0]
		for cloud, text := range texts {
			keep = append(keep, load(b, cloud, string(text), Options{}))
		}
	}
	runtime.GC()
	var with, without runtime.MemStats
	runtime.ReadMemStats(&with)
	runtime.KeepAlive(keep)
	keep = nil
	runtime.GC()
	runtime.ReadMemStats(&without)
	b.ReportMetric(float64(with.HeapAlloc-without.HeapAlloc)/(1<<20), "MiB-kept")
}

func BenchmarkList(b *testing.B) {
	var tables []*Table
	for cloud, text := range allLists(b) {
		tables = append(tables, load(b, cloud, string(text), Options{}))
	}
	for _, c := range []struct {
		name string
		q    ListQuery
	}{{"all", ListQuery{}}, {"A100", ListQuery{Name: "A100"}}, {"every region", ListQuery{AllRegions: true}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				List(tables, c.q)
			}
		})
	}
}

func BenchmarkSelect(b *testing.B) {
	table := load(b, "aws", string(bytes.Clone(allLists(b)["aws"])), Options{})
	b.ReportAllocs()
	for b.Loop() {
		sel := table.Select(Query{})
		if sel.Len() == 0 {
			b.Fatal("nothing")
		}
	}
}
