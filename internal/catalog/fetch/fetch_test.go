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
				if strings.HasPrefix(answer, "{") {
					w.Header().Set("Content-Type", "application/json")
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
	azure := Azure{API: API{BaseURL: url, Token: "k"}, ManagementURL: url, Subscription: "sub", Regions: []string{"eastus"}}
	list := table(t, "azure", azure)
	check(t, list, catalog.Query{InstanceType: "Standard_D8s_v5"}, "Standard_D8s_v5 8/32 eastus $0.384")
	check(t, list, spot(catalog.Query{InstanceType: "Standard_D8s_v5"}), "Standard_D8s_v5 8/32 eastus $0.0768")
	check(t, list, gpu("A100-80GB", 1), "Standard_NC24ads_A100_v4 24/220 eastus $3.673")
	check(t, list, gpu("A10", 0.167), "Standard_NV6ads_A10_v5 6/55 eastus $0.454")
	check(t, list, catalog.Query{InstanceType: "Standard_NV6s_v2"}, "")
	check(t, list, catalog.Query{InstanceType: "Standard_M8ms"}, "") // restricted in this region
	check(t, list, gpu("A10", 1), "Standard_NC8ads_A10_v4 8/55 eastus $0.91")
	check(t, list, gpu("H100", 1), "Standard_NC40ads_H100_v5 40/320 eastus $0, Standard_NCC40ads_H100_v5 40/320 eastus $8.8") // one has no published price
	check(t, list, gpu("H200", 8), "Standard_ND96isr_H200_v5 96/1850 eastus $84.8")
	check(t, list, gpu("GB200", 4), "Standard_ND128isr_NDR_GB200_v6 128/900 eastus $108")
	check(t, list, gpu("MI300X", 8), "Standard_ND96is_MI300X_v5 96/1850 eastus $48")
	check(t, list, catalog.Query{InstanceType: "Standard_NX2_new"}, "") // nobody knows its GPUs
	check(t, list, catalog.Query{InstanceType: "Standard_B1free"}, "")  // without a price
	columns(t, "azure", azure, "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Generation",
		`Standard_D8s_v5,,,8,32,,0.384,0.0768,eastus,"V1,V2"`,
		`Standard_NC24ads_A100_v4,A100-80GB,1,24,220,"{'Gpus': [{'Name': 'A100-80GB', 'Manufacturer': 'NVIDIA', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 81920}",3.673,,eastus,V2`)
}

// columns wants a list to have these columns and lines.
func columns(t *testing.T, cloud string, f Fetcher, lines ...string) {
	t.Helper()
	rows, err := f.Rows(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, cloud, rows); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), lines[0]+"\n") {
		t.Errorf("columns: %.200s", b.String())
	}
	for _, line := range lines[1:] {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, b.String())
		}
	}
}

// Without regions the subscription's are asked for.
func TestRegionsOfAzure(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{
		"GET /subscriptions/sub/locations?": "azure_locations.json", "GET /api/retail/prices?$filter=": "azure_prices.json", "GET /api/retail/prices?page=2": "azure_prices2.json",
		"GET /subscriptions/sub/providers/Microsoft.Compute/skus": "azure_skus.json"}))
	list := table(t, "azure", Azure{API: API{BaseURL: url, Token: "k"}, ManagementURL: url, Subscription: "sub"})
	check(t, list, catalog.Query{InstanceType: "Standard_D8s_v5"}, "Standard_D8s_v5 8/32 eastus $0.384")
}

// payers wants calls of a user to name the project that they count for, but for those to
// Compute Engine, which counts them for the project in the path.
type payers struct{ t *testing.T }

func (p payers) RoundTrip(r *http.Request) (*http.Response, error) {
	want := "mine"
	if strings.HasPrefix(r.URL.Path, "/compute/") {
		want = ""
	}
	if got := r.Header.Get("X-Goog-User-Project"); got != want || r.Header.Get("Authorization") != "Bearer found" {
		p.t.Errorf("%s counts for %q, with %q", r.URL.Path, got, r.Header.Get("Authorization"))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The credentials are those of sky check, and the endpoint is the one that the environment
// names.
func TestCredentialsOfTheUser(t *testing.T) {
	files := map[string]string{
		"GET /v1/services/6F81-5844-456A/skus": "gcp_skus.json", "GET /v1/services/E000-3F24-B8AA/skus": "gcp_tpu_skus.json",
		"GET /compute/v1/projects/mine/aggregated/machineTypes": "gcp_machines.json", "GET /compute/v1/projects/mine/aggregated/acceleratorTypes": "gcp_accelerators.json",
		"GET /v2/projects/mine/locations/us-central1-a/acceleratorTypes": "gcp_tpus.json", "GET /v2/projects/mine/locations/us-central2-b/acceleratorTypes": "gcp_tpus_v4.json",
		"GET /subscriptions/sub/locations?": "azure_locations.json", "GET /subscriptions/sub/providers/Microsoft.Compute/skus": "azure_skus.json",
		"GET /api/retail/prices?$filter=": "azure_prices.json", "GET /api/retail/prices?page=2": "azure_prices2.json",
	}
	keyed := answers(t, files)
	keyed["POST /token"] = `{"access_token": "found", "expires_in": 3600, "token_type": "Bearer"}`
	url := cloudAPI(t, "", keyed)
	home := t.TempDir()
	for _, name := range []string{"GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "CLOUDSDK_CONFIG", "AZURE_SUBSCRIPTION_ID", "AZURE_CONFIG_DIR"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("SKY_GCP_ENDPOINT", url)
	t.Setenv("SKY_AZURE_ENDPOINT", url)

	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(home, "none.json"))
	if _, err := (gcpSource.New(func(string) string { return "" })).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "gcloud auth application-default login") {
		t.Errorf("without credentials: %v", err)
	}
	user := filepath.Join(home, "user.json")
	if err := os.WriteFile(user, []byte(`{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": "`+url+`/token"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", user)
	if _, err := (gcpSource.New(func(string) string { return "" })).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "GOOGLE_CLOUD_PROJECT") {
		t.Errorf("without a project: %v", err)
	}
	t.Setenv("GOOGLE_CLOUD_PROJECT", "mine")
	gcp := gcpSource.New(func(string) string { return "" }).(GCP)
	gcp.Client = &http.Client{Transport: payers{t}}
	list := table(t, "gcp", gcp)
	check(t, list, catalog.Query{InstanceType: "n2-standard-8"}, "n2-standard-8 8/32 us-central1/us-central1-a $0.38847")

	token := func(name string) string { return map[string]string{"AZURE_ACCESS_TOKEN": "k"}[name] }
	if _, err := (azureSource.New(token)).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "az account set") {
		t.Errorf("without a subscription: %v", err)
	}
	azure := azureSource.New(func(name string) string {
		return map[string]string{"AZURE_ACCESS_TOKEN": "k", "AZURE_SUBSCRIPTION_ID": "sub"}[name]
	}).(Azure)
	azure.BaseURL = url // the public prices
	list = table(t, "azure", azure)
	check(t, list, catalog.Query{InstanceType: "Standard_D8s_v5"}, "Standard_D8s_v5 8/32 eastus $0.384")
}

func TestGCP(t *testing.T) {
	url := cloudAPI(t, "Bearer k", answers(t, map[string]string{
		"GET /services/6F81-5844-456A/skus":                        "gcp_skus.json",
		"GET /services/E000-3F24-B8AA/skus":                        "gcp_tpu_skus.json",
		"GET /projects/p/aggregated/machineTypes":                  "gcp_machines.json",
		"GET /projects/p/aggregated/acceleratorTypes":              "gcp_accelerators.json",
		"GET /projects/p/locations/us-central1-a/acceleratorTypes": "gcp_tpus.json",
		"GET /projects/p/locations/us-central2-b/acceleratorTypes": "gcp_tpus_v4.json",
	}))
	gcp := GCP{API: API{BaseURL: url, Token: "k"}, Project: "p", BillingURL: url, TPUURL: url}
	list := table(t, "gcp", gcp)
	check(t, list, catalog.Query{InstanceType: "n2-standard-8"}, "n2-standard-8 8/32 us-central1/us-central1-a $0.38847")
	check(t, list, gpu("T4", 1), "n1-highmem-4 4/26 us-central1/us-central1-a $0.58661, n1-highmem-8 8/52 us-central1/us-central1-a $0.82321")
	check(t, list, spot(catalog.Query{Accelerator: "T4", Count: 2, CPUs: catalog.Amount{N: 8}}), "n1-highmem-8 8/52 us-central1/us-central1-a $0.31962")
	check(t, list, gpu("tpu-v2-8", 1), "TPU-VM 0/0 us-central1/us-central1-a $4.5")
	check(t, list, gpu("tpu-v2-32", 1), "TPU-VM 0/0 us-central1/us-central1-a $24")
	check(t, list, catalog.Query{InstanceType: "n2d-standard-2"}, "n2d-standard-2 2/8 us-central1/us-central1-a $0.0846")
	check(t, list, spot(catalog.Query{InstanceType: "n2d-standard-2"}), "n2d-standard-2 2/8 us-central1/us-central1-a $0.018")
	check(t, list, catalog.Query{InstanceType: "t2a-standard-1"}, "t2a-standard-1 1/4 us-central1/us-central1-a $0.0386")
	check(t, list, catalog.Query{InstanceType: "c2-standard-4"}, "c2-standard-4 4/16 us-central1/us-central1-a $0.208")
	check(t, list, catalog.Query{InstanceType: "m1-ultramem-40"}, "m1-ultramem-40 40/961 us-central1/us-central1-a $6.005")
	check(t, list, catalog.Query{InstanceType: "m3-megamem-64"}, "m3-megamem-64 64/976 us-central1/us-central1-a $7.2208")
	check(t, list, catalog.Query{InstanceType: "m2-ultramem-208"}, "") // its premium is not in the list
	check(t, list, catalog.Query{InstanceType: "f1-micro"}, "f1-micro 1/0.599609375 us-central1/us-central1-a $0.0076")
	check(t, list, gpu("B200", 8), "a4-highgpu-8g 224/3968 us-central1/us-central1-a $92") // all of it in the price of the GPUs
	check(t, list, spot(gpu("B200", 8)), "a4-highgpu-8g 224/3968 us-central1/us-central1-a $36.8")
	check(t, list, gpu("tpu-v4-8", 1), "TPU-VM 0/0 us-central2/us-central2-b $12.88")
	check(t, list, gpu("tpu-v5litepod-16", 1), "TPU-VM 0/0 us-central1/us-central1-a $19.2")
	check(t, list, spot(gpu("tpu-v5litepod-16", 1)), "TPU-VM 0/0 us-central1/us-central1-a $9.6")
	check(t, list, gpu("tpu-v5p-8", 1), "TPU-VM 0/0 us-central1/us-central1-a $16.8")
	check(t, list, gpu("tpu-v6e-8", 1), "TPU-VM 0/0 us-central1/us-central1-a $700") // of which no price is published
	columns(t, "gcp", gcp, "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone",
		"n2d-standard-2,,,2,8,,0.0846,0.018,us-central1,us-central1-a",
		",A100,16,,,\"{'Gpus': [{'Name': 'A100', 'Manufacturer': 'NVIDIA', 'Count': 16, 'MemoryInfo': {'SizeInMiB': 40960}}], 'TotalGpuMemoryInMiB': 655360}\",46.88,,us-central1,us-central1-a",
		",A100-80GB,1,,,\"{'Gpus': [{'Name': 'A100-80GB', 'Manufacturer': 'NVIDIA', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 81920}\",3.93,,us-central1,us-central1-a",
		",H100-MEGA,8,,,\"{'Gpus': [{'Name': 'H100-MEGA', 'Manufacturer': 'NVIDIA', 'Count': 8, 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 655360}\",71.2,,us-central1,us-central1-a",
		",tpu-v5litepod-16,1,,,tpu-v5litepod-16,19.2,9.6,us-central1,us-central1-a")
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
