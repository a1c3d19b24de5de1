package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// render is the text of sky status.
func (v *overview) render(t *term.Term, names []string, o statusOptions, now time.Time) string {
	var b strings.Builder
	title := func(s string) { b.WriteString(t.Style(term.Title, s) + "\n") }
	if len(names) == 0 {
		head := t.Style(term.Title, "Enabled Infra:")
		if v.workspaces > 1 && v.workspace != "" {
			head = t.Style(term.Title, "Enabled Infra") + fmt.Sprintf(" (workspace: '%s'):", v.workspace)
		}
		if len(v.infra) == 0 {
			b.WriteString(head + " none. Run: sky check\n\n")
		} else {
			infra := slices.Clone(v.infra)
			for i := range infra {
				infra[i] = strings.ToLower(infra[i])
			}
			slices.Sort(infra)
			b.WriteString(head + " " + strings.Join(infra, ", ") + "\n\n")
		}
	}
	if len(v.machines) > 0 {
		title("SSH node pools")
		b.WriteString(t.Table(machinesTable(v.machines)) + "\n")
	}
	title("Clusters")
	b.WriteString(v.clusterText(t, names, o, now))

	var hints []string
	if v.jobs.shown {
		b.WriteString("\n")
		title("Managed jobs")
		text, hint := v.jobsText(t, o, now)
		b.WriteString(text)
		hints = append(hints, hint...)
	}
	if v.pools.shown && len(v.pools.value) > 0 {
		b.WriteString("\n")
		title("Pools")
		b.WriteString(t.Table(serviceTable(t, v.pools.value, true, false, now)))
		hints = append(hints, "* To see detailed pool status: sky jobs pool status -v")
	}
	if v.services.shown {
		b.WriteString("\n")
		title("Services")
		switch {
		case v.services.err != nil:
			b.WriteString(sectionError(v.services.err, "No live services. (See: sky serve -h)"))
		case len(v.services.value) == 0:
			b.WriteString("No live services. (See: sky serve -h)\n")
		default:
			b.WriteString(t.Table(serviceTable(t, v.services.value, false, false, now)))
			hints = append(hints, "* To see detailed service status: sky serve status -v")
		}
	}
	if n := v.autostops(); n > 0 && !o.refresh {
		have := "clusters have"
		if n == 1 {
			have = "cluster has"
		}
		hints = append(hints, fmt.Sprintf("* %d %s auto{stop,down} scheduled. Refresh statuses with: sky status --refresh", n, have))
	}
	if len(hints) > 0 {
		b.WriteString("\n" + strings.Join(hints, "\n") + "\n")
	}
	return b.String()
}

func (v *overview) clusterText(t *term.Term, names []string, o statusOptions, now time.Time) string {
	var b strings.Builder
	if len(v.clusters) == 0 && len(names) == 0 {
		return "No existing clusters.\n"
	}
	if len(v.clusters) > 0 {
		b.WriteString(t.Table(clusterTable(t, v.clusters, o, v.workspaces > 1, now)))
	}
	for _, r := range v.clusters {
		if text := unsavedText(r); text != "" {
			b.WriteString(text + "\n")
		}
	}
	if o.limit != nil && len(v.clusters) == *o.limit {
		fmt.Fprintf(&b, "Only the newest are shown: --limit %d.\n", *o.limit)
	}
	switch missing := notFound(names, v.clusters); len(missing) {
	case 0:
	case 1:
		fmt.Fprintf(&b, "Cluster '%s' not found.%s\n", missing[0], didYouMean(v.similar))
	default:
		fmt.Fprintf(&b, "Clusters %s not found.%s\n", format.Quote(missing), didYouMean(v.similar))
	}
	return b.String()
}

// unsavedText says what of a cluster's mounted buckets is not uploaded yet; "": nothing.
func unsavedText(r api.StatusRecord) string {
	u := r.Unsaved
	if u == nil || u.Files == 0 {
		return ""
	}
	files := fmt.Sprintf("%d files are", u.Files)
	if u.Files == 1 {
		files = "1 file is"
	}
	text := fmt.Sprintf("%s: %s not in the mounted buckets yet (%s)", r.Name, files, format.Bytes(u.Bytes))
	if u.Error != "" {
		text += ": " + plainText(u.Error)
	}
	return text
}

func (v *overview) autostops() int {
	n := 0
	for _, r := range v.clusters {
		if r.Autostop >= 0 && r.Status != api.ClusterStopped {
			n++
		}
	}
	return n
}

// jobsText is the short list of managed jobs and the hints that follow it.
func (v *overview) jobsText(t *term.Term, o statusOptions, now time.Time) (text string, hints []string) {
	const none = "No in-progress managed jobs. (See: sky jobs -h)"
	if v.jobs.err != nil {
		return sectionError(v.jobs.err, none), nil
	}
	page := v.jobs.value
	if len(page.Jobs) == 0 {
		return none + "\n", nil
	}
	text = t.Table(managedJobsTable(t, page.Jobs, jobsView{allUsers: o.allUsers, workspaces: v.workspaces > 1}, now))
	switch n := page.Total; {
	case n > len(page.Jobs):
		hints = append(hints, fmt.Sprintf("* %d managed jobs are in progress (%d latest ones shown). To see all managed jobs: sky jobs queue", n, len(page.Jobs)))
	case n == 1:
		hints = append(hints, "* 1 managed job is in progress. To see all managed jobs: sky jobs queue")
	case n > 1:
		hints = append(hints, fmt.Sprintf("* %d managed jobs are in progress. To see all managed jobs: sky jobs queue", n))
	default:
		hints = append(hints, "* To see all managed jobs: sky jobs queue")
	}
	return text, hints
}

// sectionError says why a part of the overview is missing; a service of the
// server that is not there at all counts as having nothing to show.
func sectionError(err error, none string) string {
	if e, ok := asAPIError(err); ok && (e.Type == api.ErrClusterNotUp || e.Type == "NotImplementedError" || e.Type == api.ErrNotSupported) {
		return none + "\n"
	}
	return "Not available: " + plainText(err.Error()) + "\n"
}

// clusterTable lists clusters, controllers last.
func clusterTable(t *term.Term, records []api.StatusRecord, o statusOptions, workspaces bool, now time.Time) *table.Table {
	type column struct {
		title string
		shown bool
		cell  func(r api.StatusRecord) string
	}
	columns := []column{
		{"NAME", true, func(r api.StatusRecord) string {
			if o.verbose {
				return r.Name
			}
			return format.Name(r.Name)
		}},
		{"USER", o.allUsers, func(r api.StatusRecord) string { return format.OrDash(r.UserName) }},
		{"USER_ID", o.allUsers && o.verbose, func(r api.StatusRecord) string { return format.OrDash(r.UserHash) }},
		{"WORKSPACE", workspaces || o.verbose, func(r api.StatusRecord) string { return format.OrDash(r.Workspace) }},
		{"INFRA", true, func(r api.StatusRecord) string { return infraCell(r, o.verbose) }},
		{"RESOURCES", true, func(r api.StatusRecord) string {
			if o.verbose {
				return format.OrDash(r.ResourcesStrFull)
			}
			return format.OrDash(r.ResourcesStr)
		}},
		{"STATUS", true, func(r api.StatusRecord) string { return clusterStatusCell(t, r.Status) }},
		{"AUTOSTOP", true, func(r api.StatusRecord) string { return format.Autostop(r.Autostop, r.ToDown) }},
		{"LAUNCHED", true, func(r api.StatusRecord) string { return format.Ago(float64(r.LaunchedAt), now) }},
		{"HEAD_IP", o.verbose, headIP},
		{"COMMAND", o.verbose, func(r api.StatusRecord) string { return format.OrDash(format.Truncate(r.LastUse, 25)) }},
		{"LAST_EVENT", o.verbose, func(r api.StatusRecord) string { return format.OrDash(r.LastEvent) }},
	}
	tab := table.New().Whole("NAME", "USER_ID", "STATUS", "HEAD_IP").
		Optional("USER_ID", "LAST_EVENT", "COMMAND", "WORKSPACE", "LAUNCHED", "AUTOSTOP", "USER", "RESOURCES", "INFRA")
	for _, c := range columns {
		if c.shown {
			tab.Header = append(tab.Header, c.title)
		}
	}
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(x, y api.StatusRecord) int { return rank(x) - rank(y) })
	for _, r := range sorted {
		var row []string
		for _, c := range columns {
			if c.shown {
				row = append(row, c.cell(r))
			}
		}
		tab.Add(row...)
	}
	return tab
}

func rank(r api.StatusRecord) int {
	if controllerOf(r.Name) != "" {
		return 1
	}
	return 0
}

// controllerOf says what a cluster name is reserved for: "jobs" or "serve".
func controllerOf(name string) string {
	switch {
	case strings.HasPrefix(name, "sky-jobs-controller-"), strings.HasPrefix(name, "sky-spot-controller-"):
		return "jobs"
	case strings.HasPrefix(name, "sky-serve-controller-"):
		return "serve"
	}
	return ""
}

func infraCell(r api.StatusRecord, full bool) string {
	text := r.Infra
	if text == "" && r.Cloud != "" {
		text = r.Cloud
		switch {
		case r.Zone != "":
			text += " (" + r.Zone + ")"
		case r.Region != "":
			text += " (" + r.Region + ")"
		}
	}
	if !full {
		text = format.Infra(text)
	}
	return format.OrDash(text)
}

func clusterStatusCell(t *term.Term, s api.ClusterStatus) string {
	switch s {
	case api.ClusterUp:
		return t.Style(term.Green, string(s))
	case api.ClusterStopped, api.ClusterAutostopping:
		return t.Style(term.Yellow, string(s))
	}
	return t.Style(term.Blue, string(s))
}
