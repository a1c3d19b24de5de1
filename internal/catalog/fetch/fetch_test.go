package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
)

// cloudAPI answers requests as the clouds do. answers are keyed by the start of
// "METHOD /path?query" or, for forms, by "Action=…"; what nobody expects is a
// failure.
func cloudAPI(t *testing.T, wantAuth string, answers map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
		for key, answer := range answers {
			action, isAction := strings.CutPrefix(key, "Action=")
			switch {
			case isAction && strings.Contains(string(body), "Action="+action+"&"), !isAction && strings.HasPrefix(line, key):
				auth := r.Header.Get("Authorization") + r.Header.Get("api-key")
				if !strings.HasPrefix(auth, wantAuth) && !strings.Contains(key, "retail") && !strings.Contains(key, "offers") {
					http.Error(w, "no credentials", http.StatusUnauthorized)
					return
				}
				io.WriteString(w, strings.ReplaceAll(answer, "{self}", "http://"+r.Host))
				return
			}
		}
		t.Errorf("unexpected request %s %s", line, body)
		http.NotFound(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// table makes a list of what a fetcher finds and loads it.
func table(t *testing.T, cloud string, f Fetcher) *catalog.Table {
	t.Helper()
	rows, err := f.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, cloud, rows); err != nil {
		t.Fatal(err)
	}
	list, err := catalog.Load(cloud, b.Bytes(), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func offers(list *catalog.Table, q catalog.Query) string {
	var out []string
	for _, o := range list.Find(q) {
		out = append(out, fmt.Sprintf("%s %v/%v %s%s $%v", o.InstanceType, o.CPUs, o.MemoryGiB, o.Region, strings.TrimSuffix("/"+o.Zone, "/"), o.HourlyPrice))
	}
	return strings.Join(out, ", ")
}

func check(t *testing.T, list *catalog.Table, q catalog.Query, want string) {
	t.Helper()
	if got := offers(list, q); got != want {
		t.Errorf("%+v:\ngot  %s\nwant %s", q, got, want)
	}
}

func gpu(name string, count float64) catalog.Query {
	return catalog.Query{Accelerator: name, Count: count}
}

func spot(q catalog.Query) catalog.Query { q.Spot = true; return q }

// answers reads the recorded shapes of a cloud's answers.
func answers(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for key, name := range files {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		out[key] = string(text)
	}
	return out
}

func TestLambda(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{"GET /instance-types": "lambda.json"}))
	list := table(t, "lambda", Lambda{API: API{BaseURL: url, Token: "k"}})
	check(t, list, gpu("A100-80GB", 8), "gpu_8x_a100_80gb_sxm4 240/1800 us-east-1 $14.32, gpu_8x_a100_80gb_sxm4 240/1800 us-west-2 $14.32")
	check(t, list, gpu("A10", 1), "gpu_1x_a10 30/200 us-east-1 $0.75, gpu_1x_a10 30/200 us-west-2 $0.75")
}

func TestRunPod(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{"POST /graphql": "runpod.json"}))
	list := table(t, "runpod", RunPod{API: API{BaseURL: url, Token: "k"}, Zones: map[string][]string{"CZ": {"EU-CZ-1"}}})
	check(t, list, spot(gpu("RTX4090", 2)), "2x_RTX4090_SECURE 12/82 CZ/EU-CZ-1 $0.7")
	check(t, list, gpu("H100-SXM", 1), "1x_H100-SXM_SECURE 20/125 CZ/EU-CZ-1 $2.99")
	check(t, list, gpu("RTX9999-Ada", 1), "1x_RTX9999-Ada_SECURE 8/40 CZ/EU-CZ-1 $1")
	bad := cloudAPI(t, "Bearer k", map[string]string{"POST /graphql": `{"errors":[{"message":"not allowed"}]}`})
	if _, err := (RunPod{API: API{BaseURL: bad, Token: "k"}}).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("GraphQL errors are lost: %v", err)
	}
}

func TestCudo(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{"GET /v1/vms/machine-types": "cudo.json"}))
	list := table(t, "cudo", Cudo{API{BaseURL: url, Token: "k"}})
	check(t, list, catalog.Query{Accelerator: "RTXA5000", Count: 2, CPUs: catalog.Amount{N: 8}}, "epyc-milan-rtx-a5000_2x8v16gb 8/16 se-smedjebacken-1 $0.828")
	check(t, list, catalog.Query{InstanceType: "intel-broadwell_0x8v16gb"}, "intel-broadwell_0x8v16gb 8/16 ca-montreal-1 $0.096")
}

func TestVast(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{"POST /bundles/": "vast.json"}))
	rows, err := Vast{API{BaseURL: url, Token: "k"}}.Rows(t.Context())
	var text bytes.Buffer
	if err == nil {
		err = Write(&text, "vast", rows)
	}
	if head, _, _ := strings.Cut(text.String(), "\n"); err != nil || !strings.HasSuffix(head, ",Region,HostingType") || !strings.Contains(text.String(), `,0.4,0.25,"Oregon, US",0`) || !strings.Contains(text.String(), `,0.8,0.3,"Oregon, US",1`) {
		t.Errorf("%s, %v", text.String(), err)
	}
	list := table(t, "vast", Vast{API{BaseURL: url, Token: "k"}})
	check(t, list, gpu("RTX4090", 1), "1x-RTX_4090-16-65536 16/64 Oregon, US $0.4")
	check(t, list, spot(gpu("RTX4090", 1)), "1x-RTX_4090-16-65536 16/64 Oregon, US $0.25, 1x-RTX_4090-16-65536 16/64 Oregon, US $0.3")
	for in, want := range map[string]string{"RTX 6000Ada": "RTX6000-Ada", "H100 SXM": "H100", "RTX 4080S": "RTX4080", "Tesla V100": "V100", "RTX 3090 Ti": "RTX3090", "A100 PCIE": "A100"} {
		if got := VastGPU(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestDigitalOcean(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{"GET /v2/sizes?per_page=200&page=1": "do1.json", "GET /v2/sizes?per_page=200&page=2": "do2.json"}))
	list := table(t, "do", DigitalOcean{API{BaseURL: url, Token: "k"}})
	check(t, list, catalog.Query{InstanceType: "s-8vcpu-16gb"}, "s-8vcpu-16gb 8/16 ams3 $0.14286, s-8vcpu-16gb 8/16 nyc1 $0.14286")
	check(t, list, gpu("H100", 8), "gpu-h100x8-640gb 160/1920 tor1 $23.92")
}

func TestFluidStack(t *testing.T) {
	url := cloudAPI(t, "k", answers(t, map[string]string{"GET /list_available_configurations": "fluidstack.json"}))
	list := table(t, "fluidstack", FluidStack{API{BaseURL: url, Token: "k"}})
	check(t, list, gpu("RTXA6000", 2), "RTX_A6000_48GB::2 12/110 norway_4_eu $1.58")
	check(t, list, gpu("H100-SXM", 8), "H100_SXM5_80GB::8 0/0 generic_1_canada $23.92")
}

func TestOCI(t *testing.T) {
	url := cloudAPI(t, "", answers(t, map[string]string{"GET /pls/apex/cetools/api/v1/products/": "oci.json"}))
	list := table(t, "oci", OCI{API: API{BaseURL: url}, Domains: ociDomains("eu-frankfurt-1/EU-FRANKFURT-1-AD-1, eu-frankfurt-1/EU-FRANKFURT-1-AD-2")})
	check(t, list, catalog.Query{InstanceType: "VM.Standard.E4.Flex$_8_32"}, "VM.Standard.E4.Flex$_8_32 8/32 eu-frankfurt-1 $0.148")
	check(t, list, spot(gpu("A10", 2)), "VM.GPU.A10.2 60/480 eu-frankfurt-1/EU-FRANKFURT-1-AD-1 $2, VM.GPU.A10.2 60/480 eu-frankfurt-1/EU-FRANKFURT-1-AD-2 $2")
	check(t, list, spot(gpu("A100", 8)), "")
}

func TestAzure(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{
		"GET /api/retail/prices?$filter=": "azure_prices.json", "GET /api/retail/prices?page=2": "azure_prices2.json",
		"GET /subscriptions/sub/providers/Microsoft.Compute/skus": "azure_skus.json"}))
	list := table(t, "azure", Azure{API: API{BaseURL: url, Token: "k"}, ManagementURL: url, Subscription: "sub", Regions: []string{"eastus"}})
	check(t, list, catalog.Query{InstanceType: "Standard_D8s_v5"}, "Standard_D8s_v5 8/32 eastus $0.384")
	check(t, list, spot(catalog.Query{InstanceType: "Standard_D8s_v5"}), "Standard_D8s_v5 8/32 eastus $0.0768")
	check(t, list, gpu("A100-80GB", 1), "Standard_NC24ads_A100_v4 24/220 eastus $3.673")
	check(t, list, gpu("A10", 0.167), "Standard_NV6ads_A10_v5 6/55 eastus $0.454")
	check(t, list, catalog.Query{InstanceType: "Standard_NV6s_v2"}, "")
	check(t, list, catalog.Query{InstanceType: "Standard_M8ms"}, "") // restricted in this region
}

func TestGCP(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{
		"GET /services/6F81-5844-456A/skus":                        "gcp_skus.json",
		"GET /services/E000-3F24-B8AA/skus":                        "gcp_tpu_skus.json",
		"GET /projects/p/aggregated/machineTypes":                  "gcp_machines.json",
		"GET /projects/p/aggregated/acceleratorTypes":              "gcp_accelerators.json",
		"GET /projects/p/locations/us-central1-a/acceleratorTypes": "gcp_tpus.json",
	}))
	list := table(t, "gcp", GCP{API: API{BaseURL: url, Token: "k"}, Project: "p", BillingURL: url, TPUURL: url})
	check(t, list, catalog.Query{InstanceType: "n2-standard-8"}, "n2-standard-8 8/32 us-central1/us-central1-a $0.38847")
	check(t, list, gpu("T4", 1), "n1-highmem-4 4/26 us-central1/us-central1-a $0.58661, n1-highmem-8 8/52 us-central1/us-central1-a $0.82321")
	check(t, list, spot(catalog.Query{Accelerator: "T4", Count: 2, CPUs: catalog.Amount{N: 8}}), "n1-highmem-8 8/52 us-central1/us-central1-a $0.31962")
	check(t, list, gpu("tpu-v2-8", 1), "TPU-VM 0/0 us-central1/us-central1-a $4.5")
	check(t, list, gpu("tpu-v2-32", 1), "TPU-VM 0/0 us-central1/us-central1-a $24")
}

func TestAWS(t *testing.T) {
	url := cloudAPI(t, "AWS4-HMAC-SHA256 Credential=AK/20260102/us-east-1/ec2/aws4_request", answers(t, map[string]string{
		"Action=DescribeInstanceTypes": "aws_types.xml", "Action=DescribeInstanceTypeOfferings": "aws_offerings.xml",
		"Action=DescribeAvailabilityZones": "aws_zones.xml", "Action=DescribeSpotPriceHistory": "aws_spot.xml",
		"GET /offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv": "aws_prices.csv"}))
	list := table(t, "aws", AWS{Keys: AWSKeys{AccessKey: "AK", SecretKey: "SK"}, Regions: []string{"us-east-1"}, EC2URL: url, PricingURL: url,
		Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }})
	check(t, list, catalog.Query{InstanceType: "m6i.2xlarge", EachZone: true}, "m6i.2xlarge 8/32 us-east-1/use1-az1 $0.384, m6i.2xlarge 8/32 us-east-1/use1-az2 $0.384")
	check(t, list, spot(catalog.Query{InstanceType: "m6i.2xlarge"}), "m6i.2xlarge 8/32 us-east-1/use1-az2 $0.1501")
	check(t, list, gpu("A100-80GB", 8), "p4de.24xlarge 96/1152 us-east-1 $40.96575")
	check(t, list, catalog.Query{Accelerator: "A100-80GB", Count: 8, LocalDisk: "nvme:8000"}, "p4de.24xlarge 96/1152 us-east-1 $40.96575")
	check(t, list, gpu("Trainium", 1), "trn1.2xlarge 8/32 us-east-1 $1.34375")
}

// The signature of the example in AWS's own description of the method.
func TestSignature(t *testing.T) {
	req, _ := http.NewRequest(http.MethodGet, "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", nil)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	keys := AWSKeys{AccessKey: "AKIDEXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	keys.sign(req, nil, "iam", "us-east-1", time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC))
	const want = "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
	if got := req.Header.Get("Authorization"); !strings.HasSuffix(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestRefusals(t *testing.T) {
	url := cloudAPI(t, "Bearer right", map[string]string{"GET /instance-types": "{}"})
	if _, err := (Lambda{API: API{BaseURL: url, Token: "wrong"}}).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("a refusal is not told: %v", err)
	}
	garbage := cloudAPI(t, "", map[string]string{"GET /instance-types": "<html>"})
	if _, err := (Lambda{API: API{BaseURL: garbage}}).Rows(t.Context()); err == nil {
		t.Error("garbage was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Lambda{API: API{BaseURL: url, Token: "right"}}).Rows(ctx); err == nil {
		t.Error("a cancelled fetch went on")
	}
	if err := Write(io.Discard, "lambda", nil); err == nil {
		t.Error("a list without rows was written")
	}
}
