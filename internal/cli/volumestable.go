package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// volumeKinds are the types of volumes in the order of the listing.
var volumeKinds = [...]struct{ kind, title string }{
	{"k8s-pvc", "Kubernetes PVCs:"},
	{"k8s-hostpath", "Kubernetes HostPath Volumes:"},
	{"runpod-network-volume", "RunPod Network Volumes:"},
}

func volumesText(t *term.Term, list []sky.Volume, verbose bool, now time.Time) string {
	if len(list) == 0 {
		return "No existing volumes.\n"
	}
	var parts []string
	for _, k := range volumeKinds {
		var of []sky.Volume
		for _, v := range list {
			if v.Type == k.kind {
				of = append(of, v)
			}
		}
		if len(of) > 0 {
			parts = append(parts, t.Style(term.Title, k.title)+"\n"+t.Table(volumeTable(k.kind, of, verbose, now)))
		}
	}
	return strings.Join(parts, "\n")
}

func volumeTable(kind string, list []sky.Volume, verbose bool, now time.Time) *table.Table {
	tab := table.New("NAME", "TYPE", "INFRA", "SIZE", "USER", "WORKSPACE", "AGE", "STATUS", "LAST_USE", "USED_BY").
		Whole("NAME", "STATUS", "HOST_PATH", "NAME_ON_CLOUD").Prose("MESSAGE").
		Optional("ACCESS_MODE", "STORAGE_CLASS", "IS_EPHEMERAL", "WORKSPACE", "USER", "LAST_USE", "TYPE", "NAME_ON_CLOUD", "AGE", "USED_BY", "INFRA", "SIZE")
	failed := slices.ContainsFunc(list, func(v sky.Volume) bool { return text(v.ErrorMessage) != "" })
	switch {
	case kind == "k8s-pvc" && verbose:
		tab.Header = append(tab.Header, "IS_EPHEMERAL", "NAME_ON_CLOUD", "STORAGE_CLASS", "ACCESS_MODE", "MESSAGE")
	case kind == "k8s-pvc":
		tab.Header = append(tab.Header, "IS_EPHEMERAL")
	case kind == "k8s-hostpath":
		tab.Header = append(tab.Header, "HOST_PATH")
	case verbose:
		tab.Header = append(tab.Header, "NAME_ON_CLOUD")
	}
	if failed && !slices.Contains(tab.Header, "MESSAGE") {
		tab.Header = append(tab.Header, "MESSAGE")
	}
	for _, v := range list {
		row := volumeRow(v, now)
		cfg := func(k string) string { s, _ := v.Config[k].(string); return format.OrDash(s) }
		switch {
		case kind == "k8s-pvc" && verbose:
			row = append(row, yesNo(v.Ephemeral), format.OrDash(v.NameOnCloud), cfg("storage_class_name"), cfg("access_mode"))
		case kind == "k8s-pvc":
			row = append(row, yesNo(v.Ephemeral))
		case kind == "k8s-hostpath":
			row = append(row, cfg("host_path"))
		case verbose:
			row = append(row, format.OrDash(v.NameOnCloud))
		}
		if len(row) < len(tab.Header) { // MESSAGE
			row = append(row, format.OrDash(firstLine(text(v.ErrorMessage))))
		}
		tab.Add(row...)
	}
	return tab
}

func volumeRow(v sky.Volume, now time.Time) []string {
	place := []string{v.Cloud}
	for _, p := range [...]string{text(v.Region), text(v.Zone)} {
		if p != "" {
			place = append(place, p)
		}
	}
	size, used := "-", "-"
	if s := text(v.Size); s != "" {
		size = s + "Gi"
	}
	if v.LastAttachedAt != nil && *v.LastAttachedAt > 0 {
		used = time.Unix(*v.LastAttachedAt, 0).Format(time.DateTime)
	}
	by := v.UsedByClusters
	if len(by) == 0 {
		by = v.UsedByPods
	}
	return []string{
		v.Name, v.Type, format.OrDash(strings.Join(place, "/")), size, format.OrDash(v.UserName), format.OrDash(v.Workspace),
		format.Age(now.Sub(time.Unix(v.LaunchedAt, 0))), format.OrDash(text(v.Status)), used,
		format.OrDash(format.Truncate(strings.Join(by, ", "), 25)),
	}
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// yesNo is how clients print truth.
func yesNo(b bool) string {
	s := fmt.Sprint(b)
	return strings.ToUpper(s[:1]) + s[1:]
}

// firstLine is the first line of a text, with dots for the others.
func firstLine(s string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if strings.TrimSpace(rest) != "" {
		first += " …"
	}
	return first
}
