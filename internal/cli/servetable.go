package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/task"
)

func dashIfEmpty(s string) string { return format.OrDash(s) }

func quoteAll(names []string) string { return format.Quote(names) }

// replicaRows are shown without --all.
const replicaRows = 10

// servicesText is the listing of services or pools with their parts.
func servicesText(t *term.Term, names []string, list []sky.Service, pool, verbose, all bool, now time.Time) string {
	title, one, part := "Services", "Service", "Service Replicas"
	if pool {
		title, one, part = "Pools", "Pool", "Pool Workers"
	}
	var b strings.Builder
	b.WriteString(t.Style(term.Title, title) + "\n")
	if len(list) == 0 && len(names) == 0 {
		fmt.Fprintf(&b, "No existing %ss.\n", strings.ToLower(one))
		return b.String()
	}
	if len(list) > 0 {
		b.WriteString(t.Table(serviceTable(t, list, pool, verbose, now)))
		for _, s := range list {
			for _, why := range s.Why {
				fmt.Fprintf(&b, "%s: %s\n", s.Name, why)
			}
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(list, func(s sky.Service) bool { return matches(n, s.Name) }) {
			fmt.Fprintf(&b, "%s '%s' not found.\n", one, n)
		}
	}
	if len(list) == 0 {
		return b.String()
	}
	b.WriteString("\n" + t.Style(term.Title, part) + "\n")
	tab, total := replicaTable(t, list, pool, verbose, all, now)
	switch {
	case total == 0 && pool:
		b.WriteString("No existing workers.\n")
	case total == 0:
		b.WriteString("No existing replicas.\n")
	default:
		b.WriteString(t.Table(tab))
		if len(tab.Rows) < total {
			fmt.Fprintf(&b, "... (use %s to show all replicas)\n", map[bool]string{true: "--all", false: "--verbose"}[pool])
		}
		for _, why := range troubles(list, verbose || all) {
			b.WriteString(why + "\n")
		}
	}
	return b.String()
}

// serviceTable lists services, or pools.
func serviceTable(t *term.Term, list []sky.Service, pool, verbose bool, now time.Time) *table.Table {
	tab := table.New("NAME", "VERSION", "UPTIME", "STATUS").Whole("NAME", "STATUS", "ENDPOINT").
		Optional("LOAD_BALANCING_POLICY", "AUTOSCALING_POLICY", "P50", "P95", "TARGET", "REQUESTS/S", "VERSION", "UPTIME", "REQUESTED_RESOURCES")
	if pool {
		tab.Header = append(tab.Header, "WORKERS")
	} else {
		tab.Header = append(tab.Header, "REPLICAS", "TARGET", "REQUESTS/S", "P50", "P95", "ENDPOINT")
	}
	if verbose {
		tab.Header = append(tab.Header, "AUTOSCALING_POLICY")
		if !pool {
			tab.Header = append(tab.Header, "LOAD_BALANCING_POLICY")
		}
		tab.Header = append(tab.Header, "REQUESTED_RESOURCES")
	}
	for _, s := range list {
		ready, total := 0, 0
		for _, r := range s.Replicas {
			if r.Status == "READY" {
				ready++
			}
			if !strings.HasPrefix(r.Status, "FAILED") && r.Status != "SHUTTING_DOWN" {
				total++
			}
		}
		up := "-"
		if at := value(s.Uptime); at > 0 {
			up = format.Elapsed(at, float64(now.Unix()))
		}
		row := []string{s.Name, versionCell(s), up, serviceStatusCell(t, s.Status), fmt.Sprintf("%d/%d", ready, total)}
		if !pool {
			row = append(row, number(s.TargetReplicas), rateCell(s.RequestsPerSecond), delayCell(s.P50Seconds), delayCell(s.P95Seconds), format.OrDash(text(s.Endpoint)))
		}
		if verbose {
			row = append(row, format.OrDash(text(s.Policy)))
			if !pool {
				row = append(row, format.OrDash(text(s.LoadBalancingPolicy)))
			}
			row = append(row, format.OrDash(s.RequestedResources))
		}
		tab.Add(row...)
	}
	return tab
}

// rateCell is how many requests come in each second.
func rateCell(n *float64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatFloat(*n, 'f', 1, 64)
}

// delayCell is a time until an answer begins.
func delayCell(seconds *float64) string {
	switch {
	case seconds == nil:
		return "-"
	case *seconds < 1:
		return fmt.Sprintf("%.0fms", *seconds*1000)
	}
	return fmt.Sprintf("%.1fs", *seconds)
}

func versionCell(s sky.Service) string {
	if len(s.ActiveVersions) > 0 {
		words := make([]string, len(s.ActiveVersions))
		for i, v := range s.ActiveVersions {
			words[i] = fmt.Sprint(v)
		}
		return strings.Join(words, ",")
	}
	return number(s.Version)
}

// replicaTable lists the replicas of services, or the workers of pools.
func replicaTable(t *term.Term, list []sky.Service, pool, verbose, all bool, now time.Time) (tab *table.Table, total int) {
	tab = table.New("SERVICE_NAME", "ID", "VERSION", "ENDPOINT", "LAUNCHED", "INFRA", "RESOURCES", "STATUS").
		Whole("SERVICE_NAME", "POOL_NAME", "ENDPOINT", "STATUS").Optional("LAUNCHED", "VERSION", "RESOURCES", "USED_BY", "INFRA")
	if pool {
		tab.Header = []string{"POOL_NAME", "ID", "VERSION", "LAUNCHED", "INFRA", "RESOURCES", "STATUS", "USED_BY"}
	}
	for _, s := range list {
		for _, r := range s.Replicas {
			if total++; !all && len(tab.Rows) >= replicaRows {
				continue
			}
			resources := r.ResourcesStr
			if verbose {
				resources = r.ResourcesStrFull
			}
			row := []string{s.Name, fmt.Sprint(r.ID), fmt.Sprint(r.Version)}
			if !pool {
				row = append(row, format.OrDash(text(r.Endpoint)))
			}
			row = append(row, format.Ago(value(r.LaunchedAt), now), format.OrDash(r.Infra), format.OrDash(resources), serviceStatusCell(t, r.Status))
			if pool {
				row = append(row, usedBy(r.UsedBy))
			}
			tab.Add(row...)
		}
	}
	return tab, total
}

// troubles say what is the matter with replicas, the latest first.
func troubles(list []sky.Service, all bool) (lines []string) {
	for _, s := range list {
		for _, r := range slices.Backward(s.Replicas) {
			trouble := strings.HasPrefix(r.Status, "FAILED") || r.Status == "NOT_READY" || r.Status == "PREEMPTED"
			if trouble && r.Reason != "" && (all || len(lines) < replicaRows) {
				lines = append(lines, fmt.Sprintf("%s, replica %d is %s: %s", s.Name, r.ID, r.Status, r.Reason))
			}
		}
	}
	return lines
}

// usedBy is "1, 2, +3 more".
func usedBy(ids []int) string {
	const shown = 2
	if len(ids) <= shown {
		return format.OrDash(joinInts(ids, ", "))
	}
	return fmt.Sprintf("%s, +%d more", joinInts(ids[:shown], ", "), len(ids)-shown)
}

func serviceStatusCell(t *term.Term, s string) string {
	switch {
	case s == "READY":
		return t.Style(term.Green, s)
	case strings.HasPrefix(s, "FAILED") || s == "CONTROLLER_FAILED" || s == "PREEMPTED":
		return t.Style(term.Red, s)
	case s == "SHUTTING_DOWN" || s == "NOT_READY" || s == "NO_REPLICA":
		return t.Style(term.Yellow, s)
	}
	return t.Style(term.Blue, s)
}

// specColumn is where values stand in the display of a specification.
const specColumn = 34

func specLine(name, value string) string {
	return name + strings.Repeat(" ", max(1, specColumn-len(name))) + value + "\n"
}

// serviceSpec shows a service as it was understood.
func serviceSpec(t *task.Task) (string, error) {
	sp, err := spec.Of(t)
	if err != nil {
		return "", err
	}
	s := t.Service
	p := s.ReadinessProbe
	probe := "GET " + p.Path
	switch {
	case p.Protocol == "tcp":
		probe = "TCP connection"
	case p.Protocol == "grpc" && p.GRPCService != "":
		probe = "gRPC health of " + p.GRPCService
	case p.Protocol == "grpc":
		probe = "gRPC health"
	case p.PostData != "":
		var compact any
		body := p.PostData
		if json.Unmarshal([]byte(body), &compact) == nil {
			if b, err := json.Marshal(compact); err == nil {
				body = string(b)
			}
		}
		probe = "POST " + p.Path + " " + body
	}
	if len(p.Headers) > 0 {
		probe += " with custom headers"
	}
	certs := "No TLS Enabled"
	if s.TLSKeyfile != "" {
		certs = "Keyfile: " + s.TLSKeyfile + ", Certfile: " + s.TLSCertfile
	}
	return specLine("Readiness probe method:", probe) +
		specLine("Readiness initial delay seconds:", format.Number(p.InitialDelaySeconds)) +
		specLine("Readiness probe timeout seconds:", format.Number(p.TimeoutSeconds)) +
		specLine("Replica autoscaling policy:", sp.Scale.String()) +
		specLine("TLS Certificates:", certs) +
		specLine("Spot Policy:", spotPolicy(s.Policy)) +
		specLine("Load Balancing Policy:", sp.Balance.Policy), nil
}

func spotPolicy(p *task.ReplicaPolicy) string {
	switch {
	case p == nil:
	case p.SpotPlacer != "":
		return "SpotHedge"
	case p.DynamicOndemand:
		return "Dynamic on-demand fallback"
	case p.BaseOndemandFallback > 0:
		return fmt.Sprintf("Static on-demand fallback with %s", format.Count(p.BaseOndemandFallback, "base replica"))
	}
	return "No spot policy"
}

// poolSpec shows a pool as it was understood.
func poolSpec(p *task.Pool) string {
	switch {
	case p.Max != nil:
		low, queue := 0, 1
		if p.Min != nil {
			low = *p.Min
		}
		if p.QueueLengthThreshold != nil {
			queue = *p.QueueLengthThreshold
		}
		return fmt.Sprintf("Worker policy:  Autoscaling from %d to %d workers (queue threshold: %d)\n", low, *p.Max, queue)
	case p.Workers != nil:
		return fmt.Sprintf("Worker policy:  Fixed-size (%s)\n", format.Count(*p.Workers, "worker"))
	}
	return "Worker policy:  Fixed-size (1 worker)\n"
}

// serviceHints is the block after a service was started.
func serviceHints(name, endpoint string) string {
	return fmt.Sprintf("\nService name: %[1]s\nEndpoint URL: %[2]s\n📋 Useful Commands\n"+
		"├── To check service status:\tsky serve status %[1]s [--endpoint]\n"+
		"├── To teardown the service:\tsky serve down %[1]s\n"+
		"├── To see replica logs:\tsky serve logs %[1]s REPLICA_ID\n"+
		"├── To see load balancer logs:\tsky serve logs --load-balancer %[1]s\n"+
		"├── To see controller logs:\tsky serve logs --controller %[1]s\n"+
		"├── To monitor the status:\twatch -n10 sky serve status %[1]s\n"+
		"└── To send a test request:\tcurl %[2]s\n\nService is spinning up and replicas will be ready shortly.\n", name, endpoint)
}
