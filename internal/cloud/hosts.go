package cloud

// Machines is how many machines so many nodes of the offer are: a node is a slice of several
// where Hosts says so.
func (o Offer) Machines(nodes int) int { return nodes * max(o.Hosts, 1) }

// sliceStays is why a node of several machines cannot be off.
const sliceStays = "its nodes are TPU slices of several machines, which cannot be stopped, only given back"

// Lacking says why a provider cannot do something with machines of an offer.
func Lacking(p Provider, o Offer, f Feature) (reason string, lacks bool) {
	if reason, lacks = p.Features().Lacks[f]; lacks {
		return reason, true
	}
	return LackingSlice(o.Hosts, f)
}

// LackingSlice is what nodes of so many machines cannot do wherever they are.
func LackingSlice(hosts int, f Feature) (reason string, lacks bool) {
	if hosts > 1 && (f == FeatureStop || f == FeatureAutostop) {
		return sliceStays, true
	}
	return "", false
}
