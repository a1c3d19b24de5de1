package fetch

import (
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// AWS fetches what each region offers from EC2 and the ordinary prices from the
// public price list. Zones are zone ids, which mean the same to every account.
type AWS struct {
	Client     *http.Client
	Keys       AWSKeys
	Regions    []string
	EC2URL     string // "{region}" is replaced; "": the region's own
	PricingURL string
	Now        func() time.Time // nil: time.Now
}

type awsMachine struct {
	row   Row
	zones []string
}

// Rows asks region by region.
func (a AWS) Rows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, region := range a.Regions {
		more, err := a.region(ctx, region)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", region, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (a AWS) region(ctx context.Context, region string) ([]Row, error) {
	machines, err := a.machines(ctx, region)
	if err != nil {
		return nil, err
	}
	ids, err := a.zones(ctx, region)
	if err != nil {
		return nil, err
	}
	if err := a.offerings(ctx, region, machines); err != nil {
		return nil, err
	}
	spots, err := a.spotPrices(ctx, region)
	if err != nil {
		return nil, err
	}
	prices, err := a.prices(ctx, region)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for name, m := range machines {
		row := m.row
		row.Region, row.Price = region, none
		if p, ok := prices[name]; ok {
			row.Price = p
		}
		for _, zone := range m.zones {
			row.Zone, row.Spot = ids[zone], none
			if p, ok := spots[name+" "+zone]; ok {
				row.Spot = p
			}
			if row.Zone != "" {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// query calls an EC2 action and decodes each page into what page returns; it
// follows the pages. decode gets every page's XML.
func (a AWS) query(ctx context.Context, region, action string, args map[string]string, decode func(io.Reader) (next string, err error)) error {
	base := strings.ReplaceAll(a.EC2URL, "{region}", region)
	if base == "" {
		base = "https://ec2." + region + ".amazonaws.com"
	}
	for next := ""; ; {
		form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
		for k, v := range args {
			form.Set(k, v)
		}
		if next != "" {
			form.Set("NextToken", next)
		}
		body := form.Encode()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/", strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		now := time.Now
		if a.Now != nil {
			now = a.Now
		}
		a.Keys.sign(req, []byte(body), "ec2", region, now())
		err = API{Client: a.Client}.do(req, func(r io.Reader) error {
			next, err = decode(r)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		if next == "" {
			return nil
		}
	}
}

// machines asks DescribeInstanceTypes.
func (a AWS) machines(ctx context.Context, region string) (map[string]*awsMachine, error) {
	out := map[string]*awsMachine{}
	err := a.query(ctx, region, "DescribeInstanceTypes", nil, func(r io.Reader) (string, error) {
		var page struct {
			Types []awsType `xml:"instanceTypeSet>item"`
			Next  string    `xml:"nextToken"`
		}
		if err := xml.NewDecoder(r).Decode(&page); err != nil {
			return "", err
		}
		for _, t := range page.Types {
			out[t.Name] = &awsMachine{row: t.row()}
		}
		return page.Next, nil
	})
	return out, err
}

type awsDevice struct {
	Name  string  `xml:"name"`
	Count float64 `xml:"count"`
	MiB   float64 `xml:"memoryInfo>sizeInMiB"`
}

// awsType is an item of DescribeInstanceTypes.
type awsType struct {
	Name      string      `xml:"instanceType"`
	VCPUs     float64     `xml:"vCpuInfo>defaultVCpus"`
	MemoryMiB float64     `xml:"memoryInfo>sizeInMiB"`
	Archs     []string    `xml:"processorInfo>supportedArchitectures>item"`
	GPUs      []awsDevice `xml:"gpuInfo>gpus>item"`
	Chips     []awsDevice `xml:"inferenceAcceleratorInfo>accelerators>item"`
	Neurons   []awsDevice `xml:"neuronInfo>neuronDevices>item"`
	FPGAs     []awsDevice `xml:"fpgaInfo>fpgas>item"`
	NVMe      string      `xml:"instanceStorageInfo>nvmeSupport"`
	Disks     []struct {
		GB    float64 `xml:"sizeInGB"`
		Count float64 `xml:"count"`
		Type  string  `xml:"type"`
	} `xml:"instanceStorageInfo>disks>item"`
}

func (t *awsType) row() Row {
	row := Row{InstanceType: t.Name, CPUs: t.VCPUs, MemoryGiB: t.MemoryMiB / 1024}
	for _, arch := range t.Archs {
		if arch == "arm64" || arch == "x86_64" {
			row.Arch = arch
		}
	}
	if len(t.Disks) > 0 {
		d := t.Disks[0]
		row.LocalDisk, row.LocalDiskGB, row.LocalDiskCount = d.Type, d.GB, d.Count
		row.NVMe = t.NVMe == "required" || t.NVMe == "supported"
	}
	for _, devices := range [][]awsDevice{t.GPUs, t.Neurons, t.Chips, t.FPGAs} {
		if len(devices) > 0 {
			d := devices[0]
			row.Accelerator, row.Count, row.DeviceMiB = d.Name, d.Count, d.MiB
			break
		}
	}
	t.correct(&row)
	return row
}

// correct mends what EC2 says of some machines.
func (t *awsType) correct(row *Row) {
	family, _, _ := strings.Cut(t.Name, ".")
	switch {
	case t.Name == "p3dn.24xlarge":
		row.Accelerator = "V100-32GB"
	case family == "p4de":
		row.Accelerator, row.Count = "A100-80GB", 8
	case family == "p5e" || family == "p5en":
		row.Accelerator, row.Count = "H200", 8
	case t.Name == "p5.4xlarge":
		row.Count = 1
	case (family == "g6f" || family == "gr6f") && row.DeviceMiB > 0: // a slice of an L4
		row.Count = float64(int(row.DeviceMiB/22888*1e3+0.5)) / 1e3
	case family == "g7e":
		row.Accelerator = "RTXPRO6000"
	}
}

// zones asks for the zone ids by the account's names.
func (a AWS) zones(ctx context.Context, region string) (map[string]string, error) {
	ids := map[string]string{}
	err := a.query(ctx, region, "DescribeAvailabilityZones", nil, func(r io.Reader) (string, error) {
		var page struct {
			Zones []struct {
				Name  string `xml:"zoneName"`
				ID    string `xml:"zoneId"`
				State string `xml:"zoneState"`
			} `xml:"availabilityZoneInfo>item"`
		}
		err := xml.NewDecoder(r).Decode(&page)
		for _, z := range page.Zones {
			ids[z.Name] = z.ID
		}
		return "", err
	})
	return ids, err
}

// offerings asks which zones have which machines.
func (a AWS) offerings(ctx context.Context, region string, machines map[string]*awsMachine) error {
	return a.query(ctx, region, "DescribeInstanceTypeOfferings", map[string]string{"LocationType": "availability-zone"}, func(r io.Reader) (string, error) {
		var page struct {
			Offers []struct {
				Type string `xml:"instanceType"`
				Zone string `xml:"location"`
			} `xml:"instanceTypeOfferingSet>item"`
			Next string `xml:"nextToken"`
		}
		err := xml.NewDecoder(r).Decode(&page)
		for _, o := range page.Offers {
			if m := machines[o.Type]; m != nil {
				m.zones = append(m.zones, o.Zone)
			}
		}
		return page.Next, err
	})
}

// spotPrices gives today's price by "type zone".
func (a AWS) spotPrices(ctx context.Context, region string) (map[string]float64, error) {
	now := time.Now
	if a.Now != nil {
		now = a.Now
	}
	out := map[string]float64{}
	args := map[string]string{"ProductDescription.1": "Linux/UNIX", "StartTime": now().UTC().Format(time.RFC3339)}
	err := a.query(ctx, region, "DescribeSpotPriceHistory", args, func(r io.Reader) (string, error) {
		var page struct {
			Prices []struct {
				Type  string  `xml:"instanceType"`
				Zone  string  `xml:"availabilityZone"`
				Price float64 `xml:"spotPrice"`
			} `xml:"spotPriceHistorySet>item"`
			Next string `xml:"nextToken"`
		}
		err := xml.NewDecoder(r).Decode(&page)
		for _, p := range page.Prices {
			if key := p.Type + " " + p.Zone; out[key] == 0 { // the newest comes first
				out[key] = p.Price
			}
		}
		return page.Next, err
	})
	return out, err
}

// prices reads a region's public price list, of which the first five lines are
// about the list.
func (a AWS) prices(ctx context.Context, region string) (map[string]float64, error) {
	base := strings.TrimSuffix(a.PricingURL, "/")
	if base == "" {
		base = "https://pricing.us-east-1.amazonaws.com"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/offers/v1.0/aws/AmazonEC2/current/"+region+"/index.csv", nil)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	err = API{Client: a.Client}.do(req, func(r io.Reader) error { return awsPriceList(r, out) })
	return out, err
}

func awsPriceList(r io.Reader, out map[string]float64) error {
	c := csv.NewReader(r)
	c.FieldsPerRecord, c.ReuseRecord, c.LazyQuotes = -1, true, true
	for range 5 {
		if _, err := c.Read(); err != nil {
			return fmt.Errorf("the price list is cut off: %w", err)
		}
	}
	header, err := c.Read()
	if err != nil {
		return fmt.Errorf("the price list is cut off: %w", err)
	}
	at := map[string]int{}
	for i, h := range header {
		at[h] = i
	}
	wanted := map[string][]string{"TermType": {"OnDemand"}, "Operating System": {"Linux"}, "Pre Installed S/W": {"NA"}, "CapacityStatus": {"Used"}, "Tenancy": {"Host", "Shared"}}
	for name := range wanted {
		if _, ok := at[name]; !ok {
			return fmt.Errorf("the price list has no column %q", name)
		}
	}
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !awsWants(rec, at, wanted) {
			continue
		}
		p, err := strconv.ParseFloat(rec[at["PricePerUnit"]], 64)
		if name := rec[at["Instance Type"]]; err == nil && p > 0 && (out[name] == 0 || p < out[name]) {
			out[name] = p
		}
	}
}

func awsWants(rec []string, at map[string]int, wanted map[string][]string) bool {
	for name, values := range wanted {
		i := at[name]
		if i >= len(rec) {
			return false
		}
		ok := false
		for _, v := range values {
			ok = ok || rec[i] == v
		}
		if !ok {
			return false
		}
	}
	return at["PricePerUnit"] < len(rec) && at["Instance Type"] < len(rec)
}

var awsSource = Source{"aws", []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, func(env func(string) string) Fetcher {
	return AWS{Keys: AWSKeys{AccessKey: env("AWS_ACCESS_KEY_ID"), SecretKey: env("AWS_SECRET_ACCESS_KEY"), SessionToken: env("AWS_SESSION_TOKEN")}, Regions: words(env("AWS_REGIONS"))}
}}
