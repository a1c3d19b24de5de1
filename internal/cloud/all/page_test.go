package all

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
)

var update = flag.Bool("update", false, "write docs/clouds.md")

// TestPageOfClouds holds docs/clouds.md to what the providers say of themselves.
func TestPageOfClouds(t *testing.T) {
	path := filepath.Join(root, "docs", "clouds.md")
	if *update {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != page() {
		t.Errorf("docs/clouds.md is not what the providers say (%v); run: go test ./internal/cloud/all -run PageOfClouds -update", err)
	}
}

func page() string {
	var b strings.Builder
	b.WriteString("# Clouds\n\n<!-- Written by a test of internal/cloud/all from what the providers say of themselves. -->\n\n" +
		"What can be rented where. *Regions* says what the regions of a cloud are, and who lists them: its published price list, as `sky gpus list` shows it, the cloud itself where they are\n" +
		"*offered now*, or you, whose machines they are. *Asked first* says that a cloud is asked whether it has room before a machine is. *Proven* says what the provider has been run\n" +
		"against: a backend of its own kind, or a *fake of ours*, a server that answers as the cloud's reference says, with faults; *real agents* are those of the real binary on machines\n" +
		"behind that server, and where the API server was *killed* at random moments of launches and ends, nothing was left in the account.\n\n" +
		"| Cloud | `infra:` | regions | spot | stop | several nodes | images of containers | ports | volumes | asked first | proven |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	text, err := os.ReadFile(filepath.Join(root, "test", "e2e", "clouds_test.go"))
	if err != nil {
		panic(err)
	}
	lives := string(text) // lists the clouds on which it launches, kills and looks what is left
	mark := map[bool]string{true: "yes", false: "–"}
	for _, p := range Providers(Options{}).All() {
		lacks, about := p.Features().Lacks, facts.Of(p.Name())
		row := []string{p.DisplayName(), "`" + p.Name() + "`", regions(about)}
		for _, f := range []cloud.Feature{cloud.FeatureSpot, cloud.FeatureStop, cloud.FeatureMultiNode, cloud.FeatureDocker} {
			_, lacking := lacks[f]
			row = append(row, mark[!lacking])
		}
		_, opens := cloud.As[cloud.PortOpener](p)
		_, keeps := cloud.As[cloud.Volumer](p)
		_, asks := cloud.As[cloud.AvailabilityProber](p)
		proven := about.Proven
		if proven == "" {
			proven = "fake of ours"
			if strings.Contains(lives, "Name: \""+p.Name()+"\"") {
				proven += ", real agents, killed"
			}
		}
		row = append(row, mark[opens && lacks[cloud.FeaturePorts] == ""], mark[keeps], mark[asks], proven)
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// regions are a cloud's, as its facts say.
func regions(c *facts.Cloud) string {
	if c.Regions == "" && c.Prices != nil && c.Prices.Hosted {
		return "price list"
	}
	return c.Regions
}

// TestRegionsAreKnown: of each cloud the page says where its regions are listed, and only of
// published price lists that it is there.
func TestRegionsAreKnown(t *testing.T) {
	for _, p := range Providers(Options{}).All() {
		c := facts.Of(p.Name())
		said := regions(c)
		if hosted := c.Prices != nil && c.Prices.Hosted; said == "" || hosted != strings.HasPrefix(said, "price list") {
			t.Errorf("%s: regions are %q, and its price list is published: %t", p.Name(), said, hosted)
		}
	}
}

// TestWhereBucketsAreMounted holds docs/storage.md to what the providers say: it names those
// whose nodes mount nothing. Kubernetes has a row of its own, and Docker stands for containers.
func TestWhereBucketsAreMounted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	var row string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "| no: left out of the plan") {
			row = line
		}
	}
	for _, p := range Providers(Options{}).All() {
		_, lacks := p.Features().Lacks[cloud.FeatureStorage]
		if named := strings.Contains(row, p.DisplayName()); named != lacks && p.Name() != "kubernetes" {
			t.Errorf("%s: nodes cannot mount buckets: %t; named as such: %t", p.DisplayName(), lacks, named)
		}
	}
}
