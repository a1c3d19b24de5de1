package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/config"
)

func TestPricesOfOnesOwnComeFromTheConfiguration(t *testing.T) {
	home := t.TempDir()
	os.MkdirAll(filepath.Join(home, ".sky"), 0o700)
	os.WriteFile(filepath.Join(home, ".sky", "config.yaml"), []byte(`
catalogs:
  mirror_url: https://mirror.example/catalogs
  refresh_hours: {aws: 24, gcp: 0}
  overrides:
    aws:
      file: ~/prices.csv
      discount: 0.25
      prices:
        - {instance_type: p4d.24xlarge, price: 20}
        - {instance_type: p5.48xlarge, region: us-east-1, spot_price: 30.5}
`), 0o600)
	c, err := config.Load(config.Options{Side: config.Server, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	o := catalogOptions(c, "dir", nil)
	aws := o.Overrides["aws"]
	if o.MirrorURL != "https://mirror.example/catalogs" || o.Refresh["aws"] != 24*time.Hour || o.Offline {
		t.Errorf("%+v", o)
	}
	if gcp, ok := o.Refresh["gcp"]; !ok || gcp != 0 {
		t.Error("a period of 0 means never, not the default")
	}
	if aws.Discount != 0.25 || aws.File != filepath.Join(home, "prices.csv") || len(aws.Prices) != 2 {
		t.Fatalf("%+v", aws)
	}
	if p := aws.Prices[0]; p.InstanceType != "p4d.24xlarge" || p.Price == nil || *p.Price != 20 || p.SpotPrice != nil {
		t.Errorf("%+v", p)
	}
	if p := aws.Prices[1]; p.Region != "us-east-1" || p.Price != nil || p.SpotPrice == nil || *p.SpotPrice != 30.5 {
		t.Errorf("%+v", p)
	}
}
