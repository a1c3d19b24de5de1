package execution

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
)

// TestPlansOnAWSUseReservations: the settings of a task decide which reservations count, and a launch
// at the place that was chosen is put into them.
func TestPlansOnAWSUseReservations(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	list := "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n" +
		"p5.48xlarge,H100,8,192,2048,,50,20,us-east-1,use1-az1\np5.48xlarge,H100,8,192,2048,,50,20,us-east-1,use1-az2\n" +
		"p5.48xlarge,H100,8,192,2048,,60,20,us-west-2,usw2-az1\np5.48xlarge,H100,8,192,2048,,60,20,us-west-2,usw2-az2\n"
	if err := os.WriteFile(filepath.Join(dir, "aws", "vms.csv"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	named := map[string]any{"specific_reservations": []any{"cr-west"}}
	for _, tt := range []struct {
		name     string
		settings map[string]any
		nodes    int
		denied   bool
		place    string
		cost     float64
		used     []string // the reservations of the machines
		says     string
	}{
		{"a reservation that is named", named, 2, false, "us-west-2/us-west-2b", 0, []string{"cr-west", "cr-west"}, "AWS (us-west-2b), p5.48xlarge: 2 of 2 nodes on reserved machines"},
		{"with room for fewer nodes", named, 3, false, "us-west-2/us-west-2b", 60, []string{"", "cr-west", "cr-west"}, "AWS (us-west-2b), p5.48xlarge: 2 of 3 nodes on reserved machines"},
		{"an open one", map[string]any{"prioritize_reservations": true}, 2, false, "us-east-1/us-east-1b", 0, []string{"cr-open", "cr-open"}, "2 of 2 nodes on reserved machines"},
		{"none is asked for", nil, 1, true, "us-east-1/", 50, []string{""}, ""},
		{"they may not be listed", named, 2, true, "us-east-1/", 100, nil, "Reservations of AWS that could not be listed do not count in the plan: not permitted in aws"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := awsfake.New()
			server := httptest.NewServer(fake)
			t.Cleanup(server.Close)
			t.Cleanup(fake.Restore)
			for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": awsfake.AccessKey, "AWS_SECRET_ACCESS_KEY": awsfake.SecretKey,
				"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": dir + "/none", "AWS_SHARED_CREDENTIALS_FILE": dir + "/none", "AWS_PROFILE": "", "AWS_REGION": ""} {
				t.Setenv(name, value)
			}
			fake.Reserve(awsfake.Reservation{ID: "cr-west", Zone: "us-west-2b", Machine: "p5.48xlarge", Count: 2})
			fake.Reserve(awsfake.Reservation{ID: "cr-open", Zone: "us-east-1b", Machine: "p5.48xlarge", Count: 2, Open: true})
			if tt.denied {
				fake.Deny(false, "ec2:DescribeCapacityReservations")
			}
			catalogs := catalog.NewStore(catalog.StoreOptions{Dir: dir, Offline: true, Logger: slog.New(slog.DiscardHandler)})
			p := aws.New(aws.Options{
				Image: func(context.Context, string, string) (string, bool) { return "ami-1", true }, Poll: 5 * time.Millisecond, Retries: 2, Backoff: time.Millisecond,
				Zones: func(user string, names map[string]string) {
					if err := catalogs.SetZoneNames("aws", user, names); err != nil {
						t.Error(err)
					}
				},
			})
			dag, err := parse(fmt.Sprintf("resources: {accelerators: H100:8}\nnum_nodes: %d\nrun: x\n", tt.nodes))
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"aws": tt.settings})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			x := New(Deps{Providers: cloud.NewRegistry(p), Catalogs: catalogs, Log: slog.New(slog.DiscardHandler)})
			_, plan, err := x.plan(t.Context(), cluster.Call{Out: spoken{&out}, Config: c}, planning{dag: dag})
			if err != nil {
				t.Fatal(err)
			}
			plan.Table(&out, false, 0)
			chosen := plan.Tasks[0].Chosen
			if got := chosen.Offer.Region + "/" + chosen.Offer.Zone; got != tt.place || plan.Cost != tt.cost {
				t.Errorf("%s for $%v", got, plan.Cost)
			}
			if tt.says != "" && !strings.Contains(out.String(), tt.says) || tt.says == "" && strings.Contains(out.String(), "eserv") {
				t.Errorf("it says\n%s", &out)
			}
			if tt.used == nil {
				return
			}
			nodes, err := p.Launch(t.Context(), cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Offer: chosen.Offer, Nodes: tt.nodes, Token: "t", Settings: tt.settings})
			if err != nil {
				t.Fatal(err)
			}
			var used []string
			for _, n := range nodes {
				_, _, _, in := fake.Details(n.ID)
				used = append(used, in)
			}
			if slices.Sort(used); !slices.Equal(used, tt.used) {
				t.Errorf("the machines are in %q", used)
			}
		})
	}
}
