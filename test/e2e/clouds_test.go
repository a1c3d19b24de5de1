//go:build e2e && linux

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/all"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/cudo/cudofake"
	"github.com/skypilot-go/sky/internal/cloud/do/dofake"
	"github.com/skypilot-go/sky/internal/cloud/fluidstack/fluidstackfake"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
	"github.com/skypilot-go/sky/internal/cloud/hyperbolic/hyperbolicfake"
	"github.com/skypilot-go/sky/internal/cloud/ibm/ibmfake"
	"github.com/skypilot-go/sky/internal/cloud/lambda/lambdafake"
	"github.com/skypilot-go/sky/internal/cloud/mithril/mithrilfake"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusfake"
	"github.com/skypilot-go/sky/internal/cloud/oci/ocifake"
	"github.com/skypilot-go/sky/internal/cloud/paperspace/paperspacefake"
	"github.com/skypilot-go/sky/internal/cloud/primeintellect/primeintellectfake"
	"github.com/skypilot-go/sky/internal/cloud/runpod/runpodfake"
	"github.com/skypilot-go/sky/internal/cloud/scp/scpfake"
	"github.com/skypilot-go/sky/internal/cloud/seeweb/seewebfake"
	"github.com/skypilot-go/sky/internal/cloud/shadeform/shadeformfake"
	"github.com/skypilot-go/sky/internal/cloud/vast/vastfake"
	"github.com/skypilot-go/sky/internal/cloud/verda/verdafake"
	"github.com/skypilot-go/sky/internal/cloud/vsphere/vspherefake"
	"github.com/skypilot-go/sky/internal/cloud/yotta/yottafake"
	"github.com/skypilot-go/sky/test/harness"
)

// A rentable is a cloud that the same life is lived on: a fake with machines, and what a user
// has who rents there.
type rentable struct {
	*harness.Emulator
	base  string // behind the address of the fake: how the API's paths begin, as on the cloud
	files map[string]string
	login func(address string) []string // variables with credentials
	// prices are rows of the price list; nil: the cloud's own offers are live.
	prices string
	// want is what the plan is to find.
	want []string
	// noStop is why machines cannot be off; "": they can.
	noStop string
}

const (
	columns = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region\n"
	zoned   = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
)

// stays is what Inventory has of these kinds.
func stays(kinds string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + kinds + `)(?: |$)`) }

// rentables are the clouds of machines.
var rentables = []func(testing.TB) rentable{
	func(testing.TB) rentable {
		f := awsfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "aws", Fake: f, Variable: "AWS_ENDPOINT_URL", Shared: shared, Follow: func(r *harness.Rack) {
				f.Hardware = r
				r.Follow(landlord{f, "http://127.0.0.1:1", 22})
			}},
			login: func(string) []string { return login }, files: awsLists(), want: []string{"--instance-type", "m6i.large"},
		}
	},
	func(testing.TB) rentable {
		f := lambdafake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "lambda", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("keys")}, base: "/api/v1",
			files:  map[string]string{".lambda_cloud/lambda_keys": "api_key = " + lambdafake.Key + "\n"},
			prices: columns + "gpu_1x_a10,A10,1,30,200,,0.75,,us-east-1\n", want: []string{"--gpus", "A10"}, noStop: "Lambda's machines cannot be stopped, only given back",
		}
	},
	func(testing.TB) rentable {
		f := runpodfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "runpod", Fake: f, Model: f.Fake, User: "root", Port: 30000, Script: "args"}, base: "/v2",
			files:  map[string]string{".runpod/config.toml": "[default]\napi_key = \"" + runpodfake.Key + "\"\n"},
			prices: zoned + "1x_RTX4090_SECURE,RTX4090,1,8,32,,0.69,,CZ,EU-CZ-1\n", want: []string{"--gpus", "RTX4090"}, noStop: "a pod that is stopped loses its disk, and may lose its GPU",
		}
	},
	func(testing.TB) rentable {
		f := vastfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "vast", Fake: f, Model: f.Fake, User: "root", Port: 40000, Script: "onstart"}, base: "/api",
			files: map[string]string{".config/vastai/vast_api_key": vastfake.Key + "\n"}, want: []string{"--gpus", "RTX4090"},
		}
	},
	func(testing.TB) rentable {
		f := cudofake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "cudo", Fake: f, Model: f.Fake, User: "root"}, base: "/v1",
			files:  map[string]string{".config/cudo/cudo.yml": "key: " + cudofake.Key + "\nproject: " + cudofake.Project + "\n"},
			prices: columns + cudofake.Size("epyc-milan-rtx-a5000") + ",RTXA5000,1,4,8,,0.4,,gb-bournemouth-1\n", want: []string{"--gpus", "RTXA5000"}, noStop: "machines of Cudo that are off cost what those cost that are on",
		}
	},
	func(testing.TB) rentable {
		f := fluidstackfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "fluidstack", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("keys")},
			files:    map[string]string{".fluidstack/api_key": fluidstackfake.Key + "\n"},
			prices:   columns + "RTX_A6000_48GB::1,RTXA6000,1,16,59,,0.49,,norway_4_eu\n", want: []string{"--gpus", "RTXA6000"},
		}
	},
	func(testing.TB) rentable {
		f := paperspacefake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "paperspace", Fake: f, Model: f.Fake, User: "paperspace", Script: "scripts", Shared: stays("scripts")}, base: "/v1",
			files:  map[string]string{".paperspace/config.json": `{"apiKey": "` + paperspacefake.Key + `"}`},
			prices: columns + "C5,,,4,8,,0.08,,East Coast (NY2)\n", want: []string{"--instance-type", "C5"},
		}
	},
	func(testing.TB) rentable {
		f := dofake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "do", Fake: f, Model: f.Fake, User: "root", Shared: stays("keys")}, base: "/v2",
			login:  func(string) []string { return []string{"DIGITALOCEAN_ACCESS_TOKEN=" + dofake.Token} },
			prices: columns + "s-4vcpu-8gb,,,4,8,,0.07143,,nyc2\n", want: []string{"--instance-type", "s-4vcpu-8gb"},
		}
	},
	func(testing.TB) rentable {
		f := verdafake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "verda", Fake: f, Model: f.Fake, User: "root", Shared: stays("keys")}, base: "/v1",
			login: func(string) []string {
				return []string{"VERDA_CLIENT_ID=" + verdafake.ClientID, "VERDA_CLIENT_SECRET=" + verdafake.Secret}
			},
			prices: columns + "1V100.6V,V100,1,6,23,,0.14,0.05,FIN-01\n", want: []string{"--gpus", "V100"}, noStop: "Verda goes on billing a machine that is shut down",
		}
	},
	func(testing.TB) rentable {
		f := shadeformfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "shadeform", Fake: f, Model: f.Fake, User: "shadeform", Shared: stays("keys")}, base: "/v1",
			files: map[string]string{".shadeform/api_key": shadeformfake.Key + "\n"}, want: []string{"--gpus", "RTXA6000"}, noStop: "machines of Shadeform cannot be stopped, only given back",
		}
	},
	func(testing.TB) rentable {
		f := hyperbolicfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "hyperbolic", Fake: f, Model: f.Fake, User: "ubuntu", Port: 31424},
			files:    map[string]string{".hyperbolic/api_key": hyperbolicfake.Key + "\n"}, want: []string{"--gpus", "RTX4090"}, noStop: "machines of Hyperbolic cannot be stopped, only given back",
		}
	},
	func(testing.TB) rentable {
		f := primeintellectfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "primeintellect", Fake: f, Model: f.Fake, User: "root", Shared: stays("keys")}, base: "/api/v1",
			login: func(string) []string { return []string{"PRIME_API_KEY=" + primeintellectfake.Key} }, want: []string{"--gpus", "H100"}, noStop: "pods of Prime Intellect cannot be stopped, only given back",
		}
	},
	func(testing.TB) rentable {
		f := ocifake.New()
		config, key := ocifake.Config("~/.oci/key.pem")
		return rentable{
			Emulator: &harness.Emulator{Name: "oci", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("vcns|subnets|internetGateways|routeTables|securityLists")},
			files:    map[string]string{".oci/config": config, ".oci/key.pem": string(key)},
			prices:   zoned + "VM.Standard.E4.Flex$_4_16,,,4,16,,0.074,0.037,us-phoenix-1,PHX-AD-1\n", want: []string{"--cpus", "4"},
		}
	},
	func(t testing.TB) rentable {
		f := gcpfake.New()
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		const email = "sky@" + gcpfake.Project + ".iam.gserviceaccount.com"
		public, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
		private, _ := x509.MarshalPKCS8PrivateKey(key)
		if err := f.AddKey(email, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err != nil {
			t.Fatal(err)
		}
		return rentable{
			Emulator: &harness.Emulator{Name: "gcp", Fake: f, Model: f.Fake, User: "gcpuser", Body: f.Body,
				Shared: stays("networks|serviceAccounts|firewalls skypilot-vpc-allow-(?:custom|ssh|icmp)")},
			login: func(address string) []string {
				text, _ := json.Marshal(map[string]string{
					"type": "service_account", "project_id": gcpfake.Project, "private_key_id": "1", "client_email": email, "client_id": "1",
					"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), "token_uri": address + "/token",
				})
				path := t.TempDir() + "/key.json"
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
				return []string{"GOOGLE_APPLICATION_CREDENTIALS=" + path, "GCE_METADATA_HOST=127.0.0.1:1"}
			},
			prices: zoned + "n2-standard-2,,,2,8,,0.1,0.03,us-central1,us-central1-a\n", want: []string{"--cpus", "2"},
		}
	},
	func(testing.TB) rentable {
		f := azurefake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "azure", Fake: f, Model: f.Fake, User: "azureuser", Body: f.Body},
			login: func(address string) []string {
				return []string{"AZURE_AUTHORITY_HOST=" + address, "AZURE_TENANT_ID=" + azurefake.Tenant, "AZURE_CLIENT_ID=" + azurefake.Client, "AZURE_CLIENT_SECRET=" + azurefake.Secret,
					"AZURE_SUBSCRIPTION_ID=" + azurefake.Subscription}
			},
			prices: columns + "Standard_D2s_v5,,,2,8,,0.096,0.02,eastus\n", want: []string{"--cpus", "2"},
		}
	},
	func(testing.TB) rentable {
		f := nebiusfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "nebius", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("network|subnet")},
			files:    map[string]string{".nebius/NEBIUS_IAM_TOKEN.txt": nebiusfake.Token + "\n", ".nebius/NEBIUS_TENANT_ID.txt": nebiusfake.Tenant + "\n"},
			prices:   columns + "cpu-e2_4vcpu-16gb,,,4,16,,0.1,0.05,eu-north1\n", want: []string{"--cpus", "4"},
		}
	},
	func(testing.TB) rentable {
		f := ibmfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "ibm", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("vpcs|subnets|security_groups default-of-sky-vpc|keys")},
			files:    map[string]string{".ibm/credentials.yaml": "iam_api_key: " + ibmfake.APIKey + "\nresource_group_id: " + ibmfake.ResourceGroup + "\n"},
			prices:   zoned + "bx2-4x16,,,4,16,,0.19,,us-south,us-south-1\n", want: []string{"--cpus", "4"},
		}
	},
	func(testing.TB) rentable {
		f := mithrilfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "mithril", Fake: f, Model: f.Fake, User: "ubuntu", Shared: stays("keys")},
			files:    map[string]string{".config/mithril/config.yaml": "api_key: " + mithrilfake.Key + "\nproject_id: " + mithrilfake.Project + "\n"}, want: []string{"--gpus", "A100-80GB"},
		}
	},
	func(testing.TB) rentable {
		f := seewebfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "seeweb", Fake: f, Model: f.Fake, User: "ecuser", Script: "pubkeys", Shared: stays("pubkeys")}, base: "/ecs/v2",
			files: map[string]string{".seeweb_cloud/seeweb_keys": "[DEFAULT]\napi_key = " + seewebfake.Token + "\n"}, want: []string{"--instance-type", "ECS1GPU6"},
		}
	},
	func(testing.TB) rentable {
		f := yottafake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "yotta", Fake: f, Model: f.Fake, User: "root", Port: 30000, Script: "initializationCommand"},
			files:    map[string]string{".yotta/credentials": "orgId=" + yottafake.Org + "\napikey=" + yottafake.Key + "\n"},
			prices:   columns + "1x14v119g_NVIDIA_GeForce_RTX_5090_32G_SECURE,RTX5090,1,14,119,,0.65,,us-east-2\n", want: []string{"--gpus", "RTX5090"}, noStop: "pods of Yotta are given back, not stopped",
		}
	},
	func(testing.TB) rentable {
		f := scpfake.New()
		return rentable{
			Emulator: &harness.Emulator{Name: "scp", Fake: f, Model: f.Fake, User: "root", Body: f.Body, Script: "initialScript", Shared: stays("vpcs|subnets|internetgateways|firewalls|keypairs")},
			files:    map[string]string{".scp/scp_credential": "access_key = " + scpfake.AccessKey + "\nsecret_key = " + scpfake.SecretKey + "\nproject_id = " + scpfake.ProjectID + "\n"},
			prices:   columns + "s1v8m16,,,8,16,,0.41,,KOREA-WEST-1-SCP-B001\n", want: []string{"--cpus", "8"},
		}
	},
	func(t testing.TB) rentable {
		f := vspherefake.New()
		t.Cleanup(f.Close)
		return rentable{
			Emulator: &harness.Emulator{Name: "vsphere", Fake: f, Follow: func(r *harness.Rack) {
				f.Hardware = r
				r.Follow(vcenter{f, r})
			}},
			files: map[string]string{".vsphere/credential.yaml": vspherefake.Credentials}, want: []string{"--cpus", "2"},
		}
	},
}

// tenant is a workstation with an account on a cloud.
type tenant struct {
	*workstation
	rentable
}

// rent makes the workstation of a cloud, with an account there and no other.
func rent(t testing.TB, of func(testing.TB) rentable) *tenant {
	t.Helper()
	c := of(t)
	variable, address := c.Serve(t)
	x := &tenant{newWorkstation(t), c}
	x.env = append(x.env, variable+"="+address+c.base)
	if c.login != nil {
		x.env = append(x.env, c.login(address)...)
	}
	for path, text := range c.files {
		if err := os.Chmod(x.write(path, text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c.prices != "" {
		x.write(".sky/catalogs/v8/"+c.Name+"/vms.csv", c.prices)
	}
	return x
}

// nothingLeft waits until the cloud has nothing of sky's clusters any more.
func (x *tenant) nothingLeft() {
	x.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); len(x.Left()) > 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Errorf("left on %s: %v", x.Name, x.Left())
			return
		}
	}
}

// launching is the command that launches a cluster.
func (x *tenant) launching(name string, more ...string) []string {
	return append(append([]string{"launch", "-y", "-c", name, "--infra", x.Name}, x.want...), more...)
}

// each runs a test for each cloud, or for those that SKY_E2E_CLOUDS lists.
func each(t *testing.T, test func(t *testing.T, of func(testing.TB) rentable)) {
	only := strings.Split(os.Getenv("SKY_E2E_CLOUDS"), ",")
	for _, of := range rentables {
		name := of(t).Name
		if only[0] != "" && !strings.Contains(","+strings.Join(only, ",")+",", ","+name+",") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, of)
		})
	}
}

// TestALifeOnEveryCloud launches, uses, stops, starts and ends a cluster on each cloud.
func TestALifeOnEveryCloud(t *testing.T) {
	each(t, func(t *testing.T, of func(testing.TB) rentable) {
		x := rent(t, of)
		wants(t, x.sky("check", x.Name), "enabled")
		wants(t, x.sky(x.launching("a", "--", "echo rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES | tee -a ~/seen")...), "rank 0 of 1")
		wants(t, x.sky("exec", "a", "--", "cat ~/seen; echo again"), "rank 0 of 1", "again")
		if x.noStop != "" {
			wants(t, x.sky("stop", "-y", "a"), "failed", "cannot be stopped", x.noStop)
		} else {
			x.sky("stop", "-y", "a")
			wants(t, x.sky("status", "--refresh", "-o", "json", "a"), `"status": "STOPPED"`)
			x.sky("start", "-y", "a")
			wants(t, x.sky("exec", "a", "--", "cat ~/seen"), "rank 0 of 1")
		}
		if len(x.Left()) == 0 {
			t.Error("the inventory does not show the cluster")
		}
		x.sky("down", "-y", "a")
		x.nothingLeft()
	})
}

// TestIdleClustersOnEveryCloud lets clusters be idle where machines cannot end themselves: the
// server does it, also one that was away when the time came. It waits for minutes: without
// SKY_E2E_CLOUDS it takes one cloud of each kind.
func TestIdleClustersOnEveryCloud(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for idle minutes")
	}
	providers := all.Providers(all.Options{})
	each(t, func(t *testing.T, of func(testing.TB) rentable) {
		name := of(t).Name
		// Its machines cannot be stopped, cannot stop themselves, stop and cannot end themselves.
		if os.Getenv("SKY_E2E_CLOUDS") == "" && !slices.Contains([]string{"lambda", "vast", "nebius"}, name) {
			t.Skip("like one of those that are tried; to try it: SKY_E2E_CLOUDS=" + name)
		}
		p, _ := providers.Get(name)
		if _, lacks := p.Features().Lacks[cloud.FeatureAutodown]; !lacks {
			t.Skip("its machines end themselves")
		}
		x := rent(t, of)
		wants(t, x.sky(x.launching("a", "-i", "1", "--down", "--", "true")...), "The API server gives back cluster a when it has been idle")
		eventually(t, "the idle cluster is gone", 5*time.Minute, func() bool { return x.status("a") == "" })
		x.nothingLeft()
		if x.noStop != "" {
			return
		}
		x.sky(x.launching("b", "-i", "1", "--", "true")...)
		x.killServer()
		time.Sleep(70 * time.Second)
		eventually(t, "the idle cluster is stopped", 5*time.Minute, func() bool { return x.status("b") == "STOPPED" })
		x.sky("down", "-y", "b")
		x.nothingLeft()
	})
}

// TestMountsOnEveryCloud mounts a bucket on a cluster of each cloud, in both modes. Where that
// is refused, no bucket is made.
func TestMountsOnEveryCloud(t *testing.T) {
	needFUSE(t)
	providers := all.Providers(all.Options{})
	each(t, func(t *testing.T, of func(testing.TB) rentable) {
		x, s := rent(t, of), newS3(t)
		if x.Name == "aws" {
			t.Skip("the emulator takes no keys but its own; see the tests of buckets")
		}
		x.workstation = s.user(x.workstation)
		task := x.write("task.yaml", `
file_mounts:
  ~/direct: {name: direct-1, store: s3, mode: MOUNT}
  ~/cached: {name: cached-1, store: s3, mode: MOUNT_CACHED}
run: echo one > ~/direct/x; echo two > ~/cached/x
`)
		if p, _ := providers.Get(x.Name); p.Features().Lacks[cloud.FeatureStorage] != "" {
			x.fails(1, []string{p.Features().Lacks[cloud.FeatureStorage]}, x.launching("a", task)...)
			if s.exists("direct-1") || s.exists("cached-1") {
				t.Error("a bucket was made for a task that runs nowhere")
			}
			return
		}
		x.sky(x.launching("a", task)...)
		for bucket, want := range map[string]string{"direct-1": "one\n", "cached-1": "two\n"} {
			if got := s.content(bucket, "x"); got != want {
				t.Errorf("%s has %q", bucket, got)
			}
		}
		x.sky("down", "-y", "a")
		x.nothingLeft()
	})
}

// TestTheServerDiesOnEveryCloud kills the server at random moments of launches and of ends:
// after a while, or with one of the calls to the cloud, which then has its effect or not, and
// no answer. What was asked for ends, and what is given back leaves nothing.
func TestTheServerDiesOnEveryCloud(t *testing.T) {
	each(t, func(t *testing.T, of func(testing.TB) rentable) {
		x := rent(t, of)
		r := seed(t)
		x.sky("api", "start")
		// usual is a moment of what takes so long and so many calls as usually.
		usual := func(args ...string) func() moment {
			began, calls := time.Now(), x.Calls()
			x.sky(args...)
			took, calls := time.Since(began), x.Calls()-calls
			return func() moment {
				if r.IntN(2) == 0 {
					return moment{after: time.Duration(r.Int64N(int64(took) + 1))}
				}
				return moment{call: 1 + r.IntN(calls), effect: r.IntN(2) == 0}
			}
		}
		launching, ending := usual(x.launching("usual")...), usual("down", "-y", "usual")
		died, ups := 0, 0
		for round := 0; died < kills(t, 2); round++ {
			name := fmt.Sprintf("k%d", round)
			if x.dies(launching(), x.launching(name, "-d")...) == 0 {
				ups++
			}
			died++
			if died < kills(t, 2) {
				x.dies(ending(), "down", "-y", name)
				died++
			}
			if out, code := x.of().RunFor(10*time.Minute, "down", "-y", name); code != 0 && x.status(name) != "" {
				t.Errorf("round %d: down: exit %d\n%s", round, code, out)
			}
		}
		x.nothingLeft()
		t.Logf("%s: %d kills; %d launches came to their end; left: %v", x.Name, died, ups, x.Left())
	})
}

// A moment is when a server dies: after a time, or, if that is not 0, with so many calls to
// the cloud, the last of which has its effect or not.
type moment struct {
	after  time.Duration
	call   int
	effect bool
}

// dies runs a command while the server is killed at a moment and started again, and returns
// the command's exit code.
func (x *tenant) dies(at moment, args ...string) int {
	x.t.Helper()
	c := x.command(args...)
	out, err := os.CreateTemp(x.home, "out-")
	if err != nil {
		x.t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	killed := make(chan struct{})
	if at.call > 0 {
		var met atomic.Int64
		x.Meet(func(answer func()) {
			if met.Add(1) != int64(at.call) {
				answer()
				return
			}
			if at.effect {
				answer()
			}
			x.killServer()
			close(killed)
			panic(http.ErrAbortHandler)
		})
		defer x.Meet(nil)
	}
	if err := c.Start(); err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if at.call > 0 {
		select {
		case <-killed:
		case err := <-ended: // with fewer calls than usually
			ended <- err
			x.Meet(nil)
			x.killServer()
		}
	} else {
		time.Sleep(at.after)
		x.killServer()
	}
	x.sky("api", "start")
	select {
	case <-ended:
	case <-time.After(10 * time.Minute):
		x.t.Errorf("sky %v hangs after the server came back (%+v):\n%s", args, at, tailOf(out.Name(), 3000))
		c.Process.Kill()
		<-ended
	}
	return c.ProcessState.ExitCode()
}
