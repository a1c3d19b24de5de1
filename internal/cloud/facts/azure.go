package facts

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

var azure = Cloud{
	Name: "azure", Display: "Azure",
	Prices: &Prices{
		Hosted: true, Refresh: 7 * time.Hour, Beside: []string{Images}, Columns: []Column{Generation},
		Family: lazyregexp.New(`^Standard_([DE]\d+s_v5|F\d+s_v2)$`),
		Arm:    lazyregexp.New(`^Standard_[A-Z]+[0-9]+[a-z]*p[a-z]*_`),
		Disk:   azureDisk,
	},
	Lacks:      []Feature{NetTier, LocalDisk},
	Egress:     []Tier{{1, 0}, {10240, 0.0875}, {51200, 0.083}, {153600, 0.07}, {math.Inf(1), 0.05}},
	StoreHosts: ".blob.core.windows.net",
	Label:      azureLabel,
	Notices:    AzureMetadata,
	Settings: func() *schema.Spec {
		id := identityOrRole()
		id.TaskMay, id.Admins = true, ""
		return schema.Section("Microsoft Azure.",
			schema.New("storage_account", schema.Text("Storage account for buckets.")),
			schema.New("resource_group_vm", schema.Text("Resource group of machines; absent: one per cluster.")),
			schema.New("vpc_name", schema.Text("Virtual network to launch in.").ForTasks()),
			schema.New("placement_policy", schema.Text("Placement policy of machines: compact.").ForTasks()),
			reservations(), labels(), capabilities(), internalIPs(), proxyCommand(), id,
		).Without(`write "labels"`, "instance_tags")
	},
	TaskExample: "{vpc_name: net}",
}

// azureDisk: premium disks, which medium and better are made of, attach only
// to sizes whose features include an s (Standard_D8s_v5).
func azureDisk(instance, tier string) bool {
	switch tier {
	case "ultra":
		return false
	case "medium", "high":
		return AzurePremium(instance)
	}
	return true
}

// AzurePremium reports whether premium disks attach to machines of a type.
func AzurePremium(instance string) bool {
	size := strings.TrimPrefix(instance, "Standard_")
	size, _, _ = strings.Cut(size, "_")
	return strings.ContainsRune(strings.TrimLeft(size, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"), 's')
}

// The longest key and value of a tag, in characters.
//
// https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations
const (
	azureLabelKey   = 512
	AzureLabelValue = 256
)

func azureLabel(key, value string) string {
	lower := strings.ToLower(key)
	switch {
	case key == "" || utf8.RuneCountInString(key) > azureLabelKey || strings.ContainsAny(key, `<>%&\?/`):
		return "a key has up to 512 characters, and none of <>%&\\?/"
	case strings.HasPrefix(lower, "microsoft"), strings.HasPrefix(lower, "azure"), strings.HasPrefix(lower, "windows"):
		return "keys that begin with microsoft, azure or windows belong to the cloud"
	case utf8.RuneCountInString(value) > AzureLabelValue:
		return "a value has up to 256 characters"
	}
	return ""
}
