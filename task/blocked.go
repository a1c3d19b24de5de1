package task

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func blockedSchema() *schema.Spec {
	return list(object(
		field{name: "infra", is: checked(text(), checkInfra, `[^/ ]+(/[^/ ]+)*`), doc: "Where: cloud, cloud/region or cloud/region/zone; * for any.", def: "anywhere", example: "aws/us-east-1"},
		field{name: "cloud", is: cloudSchema(), doc: "The cloud; infra says the same in one word.", def: "any", example: "aws"},
		field{name: "region", is: text(), doc: "The region.", def: "any", example: "us-east-1"},
		field{name: "zone", is: text(), doc: "The zone.", def: "any", example: "us-east-1a"},
		field{name: "instance_type", is: text(), doc: "The cloud's name for a kind of machine.", def: "any", example: "p4d.24xlarge"},
		field{name: "accelerators", is: checked(text(), checkBlockedAccelerator, `[^:]+(:[^:]+)?`).With(single(checkedNumber(number(), checkPositive))),
			doc: "GPU or TPU: NAME in any number, or NAME:COUNT.", def: "any, or none", example: "A100:8"},
		field{name: "use_spot", is: boolean(), doc: "Whether spot machines (true) or others (false) are meant.", def: "both", example: "true"},
	))
}

func checkBlockedAccelerator(s string) error {
	a, _, err := readAccelerator(s)
	if err == nil && (memoryName.MatchString(a.Name) || strings.Contains(a.Name, ":")) {
		return fmt.Errorf("asks for %s by memory; name an accelerator, as NAME or NAME:COUNT", s)
	}
	return err
}

// blocked reads blocked_resources.
func (b *builder) blocked(n *yaml11.Node) []BlockedResources {
	if n == nil {
		return nil
	}
	var out []BlockedResources
	for i, item := range n.Items {
		path := fmt.Sprintf("blocked_resources[%d]", i)
		b.checkPlace(item, nil, path)
		p := BlockedResources{
			Cloud: strings.ToLower(textOf(item.Get("cloud"))), Region: textOf(item.Get("region")), Zone: textOf(item.Get("zone")),
			InstanceType: textOf(item.Get("instance_type")), UseSpot: boolOf(item.Get("use_spot")),
		}
		if in := item.Get("infra"); in != nil {
			place, _ := ParseInfra(in.Text)
			p.Cloud, p.Region, p.Zone = place.Cloud, place.Region, place.Zone
		}
		if acc := item.Get("accelerators"); acc != nil {
			text := acc.Text
			if acc.Kind == yaml11.Map {
				text = acc.Entries[0].Key.Text
			}
			a, counted, err := readAccelerator(text)
			if err == nil && acc.Kind == yaml11.Map {
				if counted {
					err = fmt.Errorf("gives the count of %s twice", a.Name)
				}
				a.Count, counted = floatOf(acc.Entries[0].Value, 1), true
			}
			if err != nil {
				b.at(acc, path+".accelerators", "%s.accelerators %s", path, err)
				continue
			}
			if p.Accelerator = a.Name; counted {
				p.AcceleratorCount = a.Count
			}
		}
		if p == (BlockedResources{}) {
			b.at(item, path, "%s gives no field, which would block everything; give at least one of infra, instance_type, accelerators and use_spot", path)
			continue
		}
		out = append(out, p)
	}
	return out
}

func blockedTree(patterns []BlockedResources) *yaml11.Node {
	if len(patterns) == 0 {
		return nil
	}
	list := yaml11.NewList()
	for i := range patterns {
		p := &patterns[i]
		n := yaml11.NewMap()
		if text, ok := (Infra{p.Cloud, p.Region, p.Zone}).written(); ok {
			n.Put("infra", text)
		} else {
			n.PutText("cloud", p.Cloud).PutText("region", p.Region).PutText("zone", p.Zone)
		}
		n.PutText("instance_type", p.InstanceType)
		if p.AcceleratorCount > 0 {
			n.Put("accelerators", yaml11.NewMap().Put(p.Accelerator, yaml11.PlainNumber(p.AcceleratorCount)))
		} else {
			n.PutText("accelerators", p.Accelerator)
		}
		n.Put("use_spot", p.UseSpot)
		list.Items = append(list.Items, n)
	}
	return list
}

// String is the pattern in a line, such as "aws/us-east-1, A100:8, spot".
func (p BlockedResources) String() string {
	var parts []string
	if text := (Infra{p.Cloud, p.Region, p.Zone}).String(); text != "" {
		parts = append(parts, text)
	}
	if p.InstanceType != "" {
		parts = append(parts, p.InstanceType)
	}
	switch {
	case p.Accelerator == "":
	case p.AcceleratorCount > 0:
		parts = append(parts, fmt.Sprintf("%s:%v", p.Accelerator, p.AcceleratorCount))
	default:
		parts = append(parts, p.Accelerator)
	}
	if p.UseSpot != nil {
		if *p.UseSpot {
			parts = append(parts, "spot")
		} else {
			parts = append(parts, "not spot")
		}
	}
	return strings.Join(parts, ", ")
}
