//go:build e2e && linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/test/harness"
)

// account is a workstation with an account on a fake of AWS that sky finds by
// AWS_ENDPOINT_URL alone.
type account struct {
	*workstation
	cloud *awsfake.Cloud
}

// prices are what the fake rents, as the published price list has it: zones by
// the ids that all accounts share.
const prices = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
m6i.large,,,2.0,8.0,,0.096,0.03,us-east-1,use1-az1
m6i.large,,,2.0,8.0,,0.096,0.03,us-east-1,use1-az2
m6i.large,,,2.0,8.0,,0.096,0.03,us-east-1,use1-az4
m6i.large,,,2.0,8.0,,0.097,0.03,us-west-2,usw2-az1
m6i.large,,,2.0,8.0,,0.097,0.03,us-west-2,usw2-az2
m6i.large,,,2.0,8.0,,0.097,0.03,us-west-2,usw2-az3
m6i.large,,,2.0,8.0,,0.115,0.04,eu-central-1,euc1-az2
m6i.large,,,2.0,8.0,,0.115,0.04,eu-central-1,euc1-az3
g4dn.xlarge,T4,1.0,4.0,16.0,"{'Gpus': [{'Name': 'T4', 'Manufacturer': 'NVIDIA', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 16384}}], 'TotalGpuMemoryInMiB': 16384}",0.526,0.16,us-east-1,use1-az1
`

func newAccount(t testing.TB, hardware awsfake.Hardware) *account {
	t.Helper()
	fake := awsfake.New()
	fake.Hardware = hardware
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	a := &account{newWorkstation(t), fake}
	a.env = append(append(a.env, "AWS_ENDPOINT_URL="+s.URL), login...)
	for path, text := range awsLists() {
		a.write(path, text)
	}
	return a
}

var login = []string{"AWS_ACCESS_KEY_ID=" + awsfake.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awsfake.SecretKey, "AWS_EC2_METADATA_DISABLED=true"}

// awsLists are the lists of AWS that plans are made with, below the home folder.
func awsLists() map[string]string {
	images := "Tag,Region,OS,OSVersion,ImageId,CreationDate\n"
	for _, region := range []string{"us-east-1", "us-west-2", "eu-central-1"} {
		images += "skypilot:custom-cpu-ubuntu," + region + ",ubuntu,22.04,ami-" + region + ",20260101\n"
	}
	return map[string]string{
		".sky/catalogs/v8/aws/vms.csv": prices, ".sky/catalogs/v8/aws/images.csv": images,
		".sky/catalogs/v8/aws/instance_quota_mapping.csv": "InstanceType,OnDemandInstanceCode,SpotInstanceCode\nm6i.large,L-1216C47A,L-34B43A08\n",
	}
}

// shared is what docs/aws.md says stays when clusters go.
var shared = regexp.MustCompile(`^(sg-\w+ sky-sg-[0-9a-f]{10}|role skypilot-v1|instance profile skypilot-v1)$`)

// nothingLeft checks that the account holds what is shared and nothing else.
func (a *account) nothingLeft() {
	a.t.Helper()
	left := slices.DeleteFunc(a.cloud.Inventory(), shared.MatchString)
	if len(left) > 0 {
		a.t.Errorf("left in the account: %v", left)
	}
}

// TestAnEmulatorOfAWS takes a cluster through its life on instances that are
// records and no machines.
func TestAnEmulatorOfAWS(t *testing.T) {
	t.Parallel()
	a := newAccount(t, nil)
	a.write(".sky/config.yaml", "aws: {without_agents: true}\n")
	wants(t, a.sky("check", "aws", "-v"), "AWS: enabled [compute, storage]", "Activated account: AIDAFAKE")
	a.cloud.Deny(false, "ec2:TerminateInstances", "iam:PassRole")
	wants(t, a.sky("check", "aws"), "these permissions are missing: ec2:TerminateInstances, iam:PassRole", `"Action":["ec2:TerminateInstances","iam:PassRole"]`)
	a.cloud.Restore()
	wants(t, a.sky("gpus", "list", "T4", "--infra", "aws"), "T4", "g4dn.xlarge")

	a.cloud.Fill("us-east-1a", "m6i.large", false, 0)
	a.cloud.Fill("us-east-1b", "m6i.large", false, 0)
	a.cloud.Fill("us-east-1c", "m6i.large", false, 1)
	out := a.sky("launch", "-y", "-c", "a", "--infra", "aws", "--cpus", "2", "--num-nodes", "2", "--ports", "8080", "--disk-tier", "high")
	for _, m := range a.cloud.Machines() {
		if disk, _, _, _ := a.cloud.Details(m.ID); disk != "gp3 7000 437" {
			t.Errorf("the disk of tier high is %q", disk)
		}
	}
	wants(t, out, "without_agents", "Cluster launched: a", "us-east-1")
	wants(t, a.sky("status", "-o", "json", "a"), `"status": "UP"`, "us-west-2")
	a.fails(1, []string{"records of an emulator", "without_agents"}, "exec", "a", "--", "true")
	a.sky("stop", "-y", "a")
	wants(t, a.sky("status", "--refresh", "-o", "json", "a"), `"status": "STOPPED"`)
	a.sky("start", "-y", "a")
	wants(t, a.sky("status", "--refresh", "-o", "json", "a"), `"status": "UP"`)

	for _, zone := range []string{"us-west-2a", "us-west-2b", "us-west-2c", "eu-central-1a", "eu-central-1b"} {
		a.cloud.Fill(zone, "m6i.large", false, 0)
	}
	a.cloud.SetQuota("eu-central-1", "L-1216C47A", 0)
	a.fails(1, []string{"us-east-1", "us-west-2", "InsufficientInstanceCapacity", "eu-central-1", "L-1216C47A"},
		"launch", "-y", "-c", "b", "--infra", "aws", "--num-nodes", "2", "--cpus", "2")
	if out := a.sky("status", "-o", "json"); strings.Contains(out, `"name": "b"`) {
		t.Errorf("a cluster that could not be had is on record:\n%s", out)
	}
	a.cloud.Restore()
	a.sky("down", "-y", "a")
	a.nothingLeft()
}

// TestAWSWithMachines runs jobs on a fake whose instances are real processes
// with an ssh server each, reached through a proxy command.
func TestAWSWithMachines(t *testing.T) {
	t.Parallel()
	rack := harness.NewRack(t)
	a := newAccount(t, rack)
	follow(t, rack, a.cloud)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a.write(".sky/config.yaml", fmt.Sprintf("aws: {ssh_proxy_command: %q}\n", self+" "+tunnelTo+" %h:2222"))
	out := a.sky("launch", "-y", "-c", "a", "--infra", "aws", "--cpus", "2", "--num-nodes", "2", "--ports", "8080", "--", "echo rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES | tee -a ~/seen")
	wants(t, out, "rank 0 of 2", "rank 1 of 2")
	a.sky("stop", "-y", "a")
	if on := rack.On(); len(on) > 0 {
		t.Errorf("machines that are stopped run: %v", on)
	}
	a.sky("start", "-y", "a")
	wants(t, a.sky("exec", "a", "--num-nodes", "2", "--", "cat ~/seen"), "rank 0 of 2", "rank 1 of 2")

	// A spot machine that is taken back says so before, and the record when it is
	// gone.
	wants(t, a.sky("launch", "-y", "-c", "s", "--infra", "aws", "--cpus", "2", "--use-spot", "--", "echo on spot"), "on spot")
	preempt := func(in time.Duration) {
		for _, m := range a.cloud.Machines() {
			if m.Spot {
				a.cloud.Preempt(m.ID, in)
			}
		}
	}
	preempt(115 * time.Second)
	eventually(t, "the notice is on record", 100*time.Second, func() bool {
		out, _ := a.run("status", "-o", "json", "s")
		return strings.Contains(out, "the cloud takes head back (terminate)")
	})
	preempt(0)
	eventually(t, "the spot cluster is gone", time.Minute, func() bool {
		out, code := a.run("status", "--refresh", "-o", "json")
		return code == 0 && !strings.Contains(out, `"name": "s"`)
	})
	a.sky("down", "-y", "a")
	a.nothingLeft()
}

// tunnelTo makes this program connect its standard input and output to an
// address: a proxy command for machines whose ssh server has another port.
const tunnelTo = "tunnel-to"

// tunnel is what it does then.
func tunnel(address string) int {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = conn.(*net.TCPConn).ReadFrom(os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := conn.(*net.TCPConn).WriteTo(os.Stdout); err != nil {
		return 1
	}
	return 0
}

// landlord is the fake of AWS to a rack.
type landlord struct {
	*awsfake.Cloud
	imds string // where machines ask their metadata services, by their ids
	port int    // of their ssh servers
}

// follow lets the machines of a rack do what the cloud says.
func follow(t testing.TB, rack *harness.Rack, cloud *awsfake.Cloud) {
	services := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		http.StripPrefix("/"+id, cloud.Metadata(id)).ServeHTTP(w, req)
	}))
	t.Cleanup(services.Close)
	rack.Follow(landlord{cloud, services.URL, 2222})
}

var authorized = regexp.MustCompile(`ssh_authorized_keys:\n\s+- "(.*)"`)

func (l landlord) Rented() (all []harness.Rented, err error) {
	for _, m := range l.Machines() {
		one := harness.Rented{ID: m.ID, Address: m.Address, Port: l.port, State: fluffyapi.State(m.State), User: "ubuntu", Env: []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + l.imds + "/" + m.ID}}
		if m.State == shuttingDown {
			one.State = fluffyapi.Terminating
		}
		if one.State == fluffyapi.Pending {
			key := authorized.FindStringSubmatch(m.UserData)
			if key == nil {
				return all, fmt.Errorf("no key in the user data of %s:\n%s", m.ID, m.UserData)
			}
			one.Keys = key[1:]
		}
		all = append(all, one)
	}
	return all, nil
}

// shuttingDown is AWS's word for a machine that ends.
const shuttingDown = "shutting-down"

func (l landlord) Arrived(id string, from fluffyapi.State) {
	if from == fluffyapi.Terminating {
		from = shuttingDown
	}
	l.Cloud.Arrived(id, string(from))
}
