package task

import (
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Blocked is what a task never uses: everything that equals it in all fields that are
// set.
type Blocked struct {
	Infra
	InstanceType string
	Accelerators *Accelerator // Count 0: any number of them
	UseSpot      *bool
}

// blocked reads blocked_resources.
func (b *builder) blocked(list *yaml11.Node) (out []Blocked) {
	if list == nil {
		return nil
	}
	for _, item := range list.Items {
		x := Blocked{InstanceType: textOf(item.Get("instance_type")), UseSpot: boolOf(item.Get("use_spot"))}
		if infra := textOf(item.Get("infra")); infra != "" {
			x.Infra, _ = ParseInfra(infra) // checked
		}
		if text := textOf(item.Get("accelerators")); text != "" {
			a, counted, _ := readAccelerator(text) // checked
			if !counted {
				a.Count = 0
			}
			x.Accelerators = &a
		}
		if x == (Blocked{}) {
			b.at(item, "blocked_resources", "a pattern that names nothing matches everything; name an infra, instance_type, accelerators or use_spot")
			continue
		}
		out = append(out, x)
	}
	return out
}

func (x Blocked) tree() *yaml11.Node {
	n := yaml11.NewMap().PutText("infra", x.Infra.String()).PutText("instance_type", x.InstanceType)
	if x.Accelerators != nil {
		n.PutText("accelerators", x.accelerators())
	}
	if x.UseSpot != nil {
		n.Put("use_spot", *x.UseSpot)
	}
	return n
}

func (x Blocked) accelerators() string {
	if x.Accelerators.Count == 0 {
		return x.Accelerators.Name
	}
	return x.Accelerators.String()
}

// String is the pattern for people: "aws/us-east-1 p4d.24xlarge A100:8 spot".
func (x Blocked) String() string {
	var parts []string
	for _, s := range []string{x.Infra.String(), x.InstanceType} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if x.Accelerators != nil {
		parts = append(parts, x.accelerators())
	}
	if x.UseSpot != nil {
		parts = append(parts, map[bool]string{true: "spot", false: "on-demand"}[*x.UseSpot])
	}
	return strings.Join(parts, " ")
}
