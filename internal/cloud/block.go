package cloud

import "maps"

// Block is a part of what can be rented that is ruled out: every offer that
// equals it in all fields that are set. Absent fields are wildcards; Spot has
// three values, so that what rules out a cloud rules out its spot machines too.
// A block with a zone leaves an offer alone that has no zone: the cloud may
// still find room in another zone of the region.
type Block struct {
	Cloud        string             `json:"cloud,omitempty"`
	Region       string             `json:"region,omitempty"`
	Zone         string             `json:"zone,omitempty"`
	InstanceType string             `json:"instance_type,omitempty"`
	Accelerators map[string]float64 `json:"accelerators,omitempty"` // nil: any
	Spot         *bool              `json:"use_spot,omitempty"`     // nil: both
}

// BlockPlace rules out a place for everything.
func BlockPlace(p Place) Block {
	return Block{Cloud: p.Cloud, Region: p.Region, Zone: p.Zone}
}

// BlockOffer rules out exactly this offer.
func BlockOffer(o Offer) Block {
	spot := o.Spot
	return Block{Cloud: o.Cloud, Region: o.Region, Zone: o.Zone, InstanceType: o.InstanceType, Accelerators: o.Accelerators, Spot: &spot}
}

// Matches reports whether the block rules the offer out.
func (b *Block) Matches(o *Offer) bool {
	return (b.Cloud == "" || b.Cloud == o.Cloud) &&
		(b.Region == "" || b.Region == o.Region) &&
		(b.Zone == "" || b.Zone == o.Zone) &&
		(b.InstanceType == "" || b.InstanceType == o.InstanceType) &&
		(b.Spot == nil || *b.Spot == o.Spot) &&
		(b.Accelerators == nil || maps.Equal(b.Accelerators, o.Accelerators))
}

// Place is where the block rules things out.
func (b *Block) Place() Place { return Place{Cloud: b.Cloud, Region: b.Region, Zone: b.Zone} }
