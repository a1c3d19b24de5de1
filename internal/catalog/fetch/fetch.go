// Package fetch rebuilds price lists from the clouds' own price APIs, for
// those who want fresher or more private lists than the hosted ones.
//
// A [Fetcher] asks one cloud and answers with rows; [Write] makes the vms.csv
// that package catalog reads.
package fetch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// Fetcher asks one cloud what it offers at which price.
type Fetcher interface {
	Rows(ctx context.Context) ([]Row, error)
}

// Source is a cloud whose price interface is known.
type Source struct {
	Cloud string
	Needs []string // variables of the environment that hold what it needs, the ~/file that does, or how it is found
	New   func(env func(string) string) Fetcher
}

// Sources lists them, by name.
func Sources() []Source {
	return []Source{
		awsSource, azureSource, cudoSource, digitaloceanSource, fluidstackSource, gcpSource, hyperbolicSource, ibmSource, lambdaSource, mithrilSource, nebiusSource, ociSource, primeintellectSource, runpodSource, seewebSource,
		shadeformSource, vastSource, verdaSource, vsphereSource,
	}
}

// words are the parts of a list with commas or spaces.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// Row is a line of vms.csv. Prices are $ per hour; NaN: not offered that way.
type Row struct {
	InstanceType   string
	Accelerator    string
	Count          float64
	CPUs           float64 // 0: unknown
	MemoryGiB      float64 // 0: unknown
	DeviceMiB      float64 // of one accelerator; 0: unknown
	Price, Spot    float64
	Region, Zone   string
	Generation     string // Azure: V1, V2 or both
	Arch           string // AWS: x86_64 or arm64
	LocalDisk      string // AWS: ssd or hdd
	NVMe           bool
	LocalDiskGB    float64 // one disk
	LocalDiskCount float64
	Hosting        int // Vast: 1 and more in a data centre
}

var none = math.NaN()

// API is how a fetcher reaches its cloud.
type API struct {
	Client  *http.Client // nil: one with a timeout
	BaseURL string       // "": the cloud's
	Token   string       // key or access token
}

func (a API) client() *http.Client {
	if a.Client != nil {
		return a.Client
	}
	return &http.Client{Timeout: time.Minute}
}

func (a API) url(fallback, path string) string {
	return strings.TrimSuffix(cmp.Or(a.BaseURL, fallback), "/") + path
}

const maxAnswer = 1 << 30

// do sends a request and hands the body of a good answer to read.
func (a API) do(req *http.Request, read func(io.Reader) error) error {
	resp, err := a.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		words, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("%s %s answered %s: %s", req.Method, req.URL.Redacted(), resp.Status, bytes.TrimSpace(words))
	}
	return read(io.LimitReader(resp.Body, maxAnswer))
}

// json asks for JSON and decodes it into v. body is sent as JSON by POST unless
// it is nil; header pairs are set as they are.
func (a API) json(ctx context.Context, url string, body, v any, header ...string) error {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		method, content = http.MethodPost, bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return a.do(req, func(r io.Reader) error {
		if err := json.NewDecoder(r).Decode(v); err != nil {
			return fmt.Errorf("%s: the answer is not what was expected: %w", req.URL.Redacted(), err)
		}
		return nil
	})
}

func (a API) bearer() []string { return []string{"Authorization", "Bearer " + a.Token} }

// Write makes a vms.csv of the rows, sorted, and checks that it can be read
// back.
func Write(w io.Writer, cloud string, rows []Row) error {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.InstanceType, b.InstanceType), strings.Compare(a.Accelerator, b.Accelerator), cmp.Compare(a.Count, b.Count),
			strings.Compare(a.Region, b.Region), strings.Compare(a.Zone, b.Zone))
	})
	header := []string{"InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice", "Region"}
	zoned := slices.ContainsFunc(rows, func(r Row) bool { return r.Zone != "" })
	if zoned {
		header = append(header, "AvailabilityZone")
	}
	var columns []facts.Column
	if p := facts.Of(cloud).Prices; p != nil {
		columns = p.Columns
	}
	for _, c := range columns {
		header = append(header, string(c))
	}
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	out.Write(header)
	for i := range rows {
		out.Write(rows[i].record(columns, zoned))
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return err
	}
	t, err := catalog.Load(cloud, b.Bytes(), catalog.Options{})
	if err != nil {
		return err
	}
	if t.Report.Skipped > 0 {
		return fmt.Errorf("%d rows make no sense, such as line %d: %s", t.Report.Skipped, t.Report.Problems[0].Line, t.Report.Problems[0].Reason)
	}
	if t.Report.Rows == 0 {
		return fmt.Errorf("%s offers nothing", cloud)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func (r *Row) record(columns []facts.Column, zoned bool) []string {
	rec := []string{r.InstanceType, r.Accelerator, number(r.Count), number(r.CPUs), number(r.MemoryGiB), r.gpuInfo(), price(r.Price), price(r.Spot), r.Region}
	if zoned {
		rec = append(rec, r.Zone)
	}
	for _, c := range columns {
		rec = append(rec, r.column(c))
	}
	return rec
}

func (r *Row) column(c facts.Column) string {
	switch c {
	case facts.Generation:
		return r.Generation
	case facts.Arch:
		return r.Arch
	case facts.LocalDiskType:
		return r.LocalDisk
	case facts.NVMe:
		if r.LocalDisk != "" {
			return strconv.FormatBool(r.NVMe)
		}
	case facts.LocalDiskSize:
		return number(r.LocalDiskGB)
	case facts.LocalDiskCount:
		return number(r.LocalDiskCount)
	case facts.HostingType:
		return strconv.Itoa(r.Hosting)
	}
	return ""
}

// gpuInfo is the description of the devices that price lists carry.
func (r *Row) gpuInfo() string {
	if r.Accelerator == "" || r.DeviceMiB == 0 {
		return r.Accelerator
	}
	maker := "NVIDIA"
	if a, ok := catalog.FindAccelerator(r.Accelerator); ok && a.Maker != "" {
		maker = strings.ToUpper(a.Maker)
	}
	return fmt.Sprintf("{'Gpus': [{'Name': '%s', 'Manufacturer': '%s', 'Count': %s, 'MemoryInfo': {'SizeInMiB': %s}}], 'TotalGpuMemoryInMiB': %s}",
		r.Accelerator, maker, number(r.Count), number(r.DeviceMiB), number(r.DeviceMiB*r.Count))
}

func number(x float64) string {
	if x == 0 {
		return ""
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

func price(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(math.Round(x*1e8)/1e8, 'f', -1, 64)
}

// deviceMiB is the memory of a device known by name.
func deviceMiB(name string) float64 {
	a, _ := catalog.FindAccelerator(name)
	return a.MemoryGB * 1024
}

// looseNumber is a number that some APIs write as text.
type looseNumber float64

func (n *looseNumber) UnmarshalJSON(text []byte) error {
	s := strings.Trim(string(text), `"`)
	if s == "" || s == "null" {
		return nil
	}
	x, err := strconv.ParseFloat(s, 64)
	*n = looseNumber(x)
	return err
}
