package simulate

import (
	"testing"
	"time"
)

// A day of a service on spot machines.
func BenchmarkDay(b *testing.B) {
	span := 24 * time.Hour
	t := Requests(span, docSpotPeak, docSeed)[0]
	zones := Zones(span, docSeed)
	s := docSpec(docScale+", spot_placer: hedged", true)
	for b.Loop() {
		Run(Options{Spec: s, Requests: t.Requests, Zones: zones, Span: span})
	}
}
