package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Image is a machine image that task files name by a tag such as
// "skypilot:gpu-ubuntu-2204".
type Image struct {
	Tag, Region     string // Region "" is everywhere
	OS, OSVersion   string
	ID              string
	Created         string // YYYYMMDD, may be ""
	BaseID          string // GCP: the image it was made from
	ListingID       string // OCI: in the application catalog
	ResourceVersion string // OCI: of the listing
}

// Images is a cloud's images.csv.
type Images struct {
	list []Image
	tags []string
}

// LoadImages reads an images.csv; columns are found by name.
func LoadImages(text []byte) (*Images, error) {
	out := &Images{}
	err := eachRecord(text, []string{"Tag", "ImageId"}, func(get func(string) string) {
		i := Image{Tag: get("Tag"), Region: get("Region"), OS: get("OS"), OSVersion: get("OSVersion"), ID: get("ImageId"), Created: get("CreationDate"),
			BaseID: get("BaseImageId"), ListingID: get("AppCatalogListingId"), ResourceVersion: get("ResourceVersion")}
		if strings.EqualFold(i.Region, "nan") {
			i.Region = ""
		}
		if i.Tag == "" || i.ID == "" {
			return
		}
		out.list = append(out.list, i)
		if !slices.Contains(out.tags, i.Tag) {
			out.tags = append(out.tags, i.Tag)
		}
	})
	return out, err
}

// Find gives the image of a tag in a region: the region's own, else the one
// for everywhere.
func (im *Images) Find(tag, region string) (Image, bool) {
	if im == nil {
		return Image{}, false
	}
	global, found := Image{}, false
	for _, i := range im.list {
		switch {
		case i.Tag != tag:
		case strings.EqualFold(i.Region, region):
			return i, true
		case i.Region == "":
			global, found = i, true
		}
	}
	return global, found
}

// Tags lists the tags in the order of the file.
func (im *Images) Tags() []string {
	if im == nil {
		return nil
	}
	return im.tags
}

// Quotas tells under which names a cloud's quota service counts a machine or
// an accelerator.
type Quotas map[string]Quota

// Quota names the limits for ordinary and for spot machines.
type Quota struct{ OnDemand, Spot string }

// LoadQuotas reads aws/instance_quota_mapping.csv or
// gcp/accelerator_quota_mapping.csv; the first column is the key.
func LoadQuotas(text []byte) (Quotas, error) {
	q := Quotas{}
	s := newScanner(text)
	if !s.scan() {
		return nil, errEmpty
	}
	key := string(s.fields[0])
	err := eachRecord(text, []string{key, "OnDemandInstanceCode", "SpotInstanceCode"}, func(get func(string) string) {
		q[get(key)] = Quota{OnDemand: get("OnDemandInstanceCode"), Spot: get("SpotInstanceCode")}
	})
	return q, err
}

// LoadZoneNames reads an account's zone mapping (aws/az_mappings-*.csv): from
// zone ids, which price lists use, to the account's names.
func LoadZoneNames(text []byte) (map[string]string, error) {
	m := map[string]string{}
	err := eachRecord(text, []string{"AvailabilityZone", "AvailabilityZoneName"}, func(get func(string) string) {
		m[get("AvailabilityZone")] = get("AvailabilityZoneName")
	})
	return m, err
}

var errEmpty = errors.New("the file is empty")

// eachRecord calls f with every record of a small CSV file; get finds a field
// by the name of its column, "" if absent.
func eachRecord(text []byte, required []string, f func(get func(column string) string)) error {
	s := newScanner(text)
	if !s.scan() {
		return errEmpty
	}
	at := map[string]int{}
	for i, h := range s.fields {
		at[strings.TrimSpace(string(h))] = i
	}
	for _, r := range required {
		if _, ok := at[r]; !ok {
			return fmt.Errorf("no column %s in the first line", r)
		}
	}
	get := func(column string) string {
		i, ok := at[column]
		if !ok || i >= len(s.fields) {
			return ""
		}
		return string(s.fields[i])
	}
	for s.scan() {
		f(get)
	}
	return nil
}
