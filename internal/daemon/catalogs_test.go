package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

const someList = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,Region
gpu1,H100,1,26,200,{'TotalGpuMemoryInMiB': 81920},2.5,home
gpu8,H100,8,208,1600,{'TotalGpuMemoryInMiB': 655360},20,home
cpu,,,8,32,,0.5,home
`

// listed is a server that finds one cloud's price list where its configuration says.
func listed(t *testing.T) *team {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/lambda/vms.csv") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, someList)
	}))
	t.Cleanup(host.Close)
	return newTeam(t, teamConfig+"catalogs: {base_url: '"+host.URL+"', mirror_url: '"+host.URL+"'}\n")
}

func TestPriceListsAreAskedOverTheAPI(t *testing.T) {
	w := listed(t)
	uma, ctx := w.as("uma"), t.Context()
	offers := func(b api.ListAcceleratorsBody) (map[string][]api.AcceleratorOffer, error) {
		return got[map[string][]api.AcceleratorOffer](w)(uma.Accelerators(ctx, b))
	}
	for _, tt := range []struct {
		name string
		body api.ListAcceleratorsBody
		want int
	}{
		{"all accelerators of a cloud", api.ListAcceleratorsBody{}, 2},
		{"by a regular expression", api.ListAcceleratorsBody{NameFilter: new("^H")}, 2},
		{"which heeds the case", api.ListAcceleratorsBody{NameFilter: new("^h")}, 0},
		{"or does not", api.ListAcceleratorsBody{NameFilter: new("^h"), CaseSensitive: new(false)}, 2},
		{"by their number", api.ListAcceleratorsBody{QuantityFilter: new(8.0)}, 1},
		{"by a region", api.ListAcceleratorsBody{RegionFilter: new("abroad")}, 0},
	} {
		tt.body.Clouds = api.Strings{"Lambda"}
		if all, err := offers(tt.body); err != nil || len(all["H100"]) != tt.want {
			t.Errorf("%s: %v, %v", tt.name, all, err)
		}
	}
	counts, err := got[map[string][]float64](w)(uma.AcceleratorCounts(ctx, api.ListAcceleratorsBody{Clouds: api.Strings{"lambda"}}))
	if err != nil || !slices.Equal(counts["H100"], []float64{1, 8}) {
		t.Errorf("counts: %v, %v", counts, err)
	}
	_, err = offers(api.ListAcceleratorsBody{NameFilter: new("(")})
	wants(t, "a filter that is none", err, "no regular expression")
	_, err = offers(api.ListAcceleratorsBody{Clouds: api.Strings{"nimbus"}})
	wants(t, "a cloud that nobody knows", err, `no price list for "nimbus"`)
	_, err = offers(api.ListAcceleratorsBody{Clouds: api.Strings{"runpod"}})
	wants(t, "a list that cannot be had", err, "No price list could be had")
	// Clients name every cloud that they know, those without a list among them.
	told, err := said[map[string][]api.AcceleratorOffer](w)(uma.Accelerators(ctx, api.ListAcceleratorsBody{Clouds: api.Strings{"vast", "lambda", "kubernetes"}}))
	if err != nil || !strings.Contains(told, "Not listed: vast, kubernetes (there is no price list)") {
		t.Errorf("clouds without a list: %q, %v", told, err)
	}
	if all, err := offers(api.ListAcceleratorsBody{Clouds: api.Strings{"vast", "lambda"}}); err != nil || len(all["H100"]) != 2 {
		t.Errorf("clouds without a list: %v, %v", all, err)
	}
	// One that cannot be had does not keep the others from being shown.
	out, err := said[map[string][]api.AcceleratorOffer](w)(uma.Accelerators(ctx, api.ListAcceleratorsBody{Clouds: api.Strings{"lambda", "runpod"}}))
	if err != nil || !strings.Contains(out, "Not listed: ") || !strings.Contains(out, "runpod") {
		t.Errorf("two lists: %q, %v", out, err)
	}
}

func TestPriceListsAreFetchedAndToldOf(t *testing.T) {
	w := listed(t)
	ctx := t.Context()
	of := func(all []api.CatalogStatus) api.CatalogStatus {
		i := slices.IndexFunc(all, func(s api.CatalogStatus) bool { return s.Cloud == "lambda" })
		if i < 0 {
			t.Fatalf("lambda is not told of: %v", all)
		}
		return all[i]
	}
	all, err := got[[]api.CatalogStatus](w)(w.as("uma").CatalogStatus(ctx))
	if s := of(all); err != nil || s.FetchedAt != 0 || s.Offers != 0 {
		t.Errorf("before it was fetched: %+v, %v", s, err)
	}
	refresh := func(clouds ...string) ([]api.CatalogStatus, error) {
		return got[[]api.CatalogStatus](w)(w.as("ada").RefreshCatalog(ctx, clouds))
	}
	all, err = refresh("lambda", "runpod") // one of which is not there
	if s := of(all); err != nil || s.FetchedAt == 0 || s.Offers != 3 || s.Edited || s.Problem != "" {
		t.Errorf("after it was fetched: %+v, %v", s, err)
	}
	out, err := said[[]api.CatalogStatus](w)(w.as("ada").RefreshCatalog(ctx, []string{"lambda", "runpod"}))
	if err != nil || !strings.Contains(out, "✓ lambda") || !strings.Contains(out, "✗ runpod") {
		t.Errorf("%q, %v", out, err)
	}
	_, err = refresh("nimbus")
	wants(t, "a cloud that nobody knows", err, `no price list for "nimbus"`)
	_, err = refresh("runpod")
	wants(t, "nothing that can be fetched", err, "No price list could be fetched")
	// A list that makes no sense is told about with what is wrong.
	w.write(filepath.Join("catalogs", "v8", "runpod", "vms.csv"), "Nonsense\n1\n")
	all, err = got[[]api.CatalogStatus](w)(w.as("uma").CatalogStatus(ctx))
	if i := slices.IndexFunc(all, func(s api.CatalogStatus) bool { return s.Cloud == "runpod" && s.Problem != "" && s.Edited }); err != nil || i < 0 {
		t.Errorf("a list of nonsense: %+v, %v", all, err)
	}
}

// What the account's region sells and how much of it comes from AWS's list.
func TestAWSIsToldImagesAndQuotasOfThePriceList(t *testing.T) {
	w := newTeam(t, teamConfig+"catalogs: {offline: true}\naws: {vpc_name: ours}\n")
	o := w.d.awsOptions()
	if s := o.Settings(); s.VPC != "ours" {
		t.Errorf("the settings are %+v", s)
	}
	if id, ok := o.Image(t.Context(), "skypilot:gpu-ubuntu-2204", "us-east-1"); ok || o.QuotaCode(t.Context(), "m6i.large", false) != "" {
		t.Errorf("without a list there is an image %q", id)
	}
	w.write(filepath.Join("catalogs", "v8", "aws", "vms.csv"), "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region\nm6i.large,,,2,8,0.1,us-east-1\n")
	w.write(filepath.Join("catalogs", "v8", "aws", "images.csv"), "Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId\nskypilot:gpu-ubuntu-2204,us-east-1,ubuntu,22.04,ami-1,20240101,ami-0\n")
	w.write(filepath.Join("catalogs", "v8", "aws", "instance_quota_mapping.csv"), "InstanceType,OnDemandInstanceCode,SpotInstanceCode\nm6i.large,L-1,L-2\n")
	if id, ok := o.Image(t.Context(), "skypilot:gpu-ubuntu-2204", "us-east-1"); !ok || id != "ami-1" {
		t.Errorf("the image is %q", id)
	}
	for spot, want := range map[bool]string{false: "L-1", true: "L-2"} {
		if code := o.QuotaCode(t.Context(), "m6i.large", spot); code != want {
			t.Errorf("spot %t: the quota is %q", spot, code)
		}
	}
	o.Zones("someone", map[string]string{"use1-az1": "us-east-1c"})
	if found, _ := filepath.Glob(filepath.Join(w.home, ".sky", "catalogs", "v8", "aws", "*az*")); len(found) == 0 {
		t.Error("the account's zones are not kept")
	}
}
