package gcp

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// mostProjects is how many projects are listed that only the credentials know of. With at most
// three lists each, this bounds the calls of a sweep.
const mostProjects = 300

// of is the account of another project that is reached with the same credentials; "": a.
func (p *Provider) of(a *account, project string) *account {
	if project == "" || project == a.project {
		return a
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account != a { // the credentials changed meanwhile
		return a.elsewhere(project)
	}
	if p.others[project] == nil {
		if p.others == nil {
			p.others = map[string]*account{}
		}
		p.others[project] = a.elsewhere(project)
	}
	return p.others[project]
}

func (a *account) elsewhere(project string) *account {
	return &account{
		ready: readiness{making: make(chan struct{}, 1)}, home: a.project, stamp: a.stamp, creds: a.creds, project: project,
		compute: a.compute, tpu: a.tpu, manager: a.manager, finder: a.finder, iam: a.iam, usage: a.usage, openid: a.openid,
	}
}

// there notes the project of a machine that is not in the one in use.
func (a *account) there(m vm.Machine) vm.Machine {
	if a.home != "" {
		detail := m.Detail.(about)
		detail.project = a.project
		m.Detail = detail
	}
	return m
}

// ListAccounts lists the machines of an installation in the project in use, those of the
// configuration, and those that the credentials see. A project whose Compute Engine API is
// not enabled, or that nobody pays for, runs none.
//
// https://cloud.google.com/resource-manager/reference/rest/v3/projects/search
func (p *Provider) ListAccounts(ctx context.Context, installation string) ([]cloud.Node, []cloud.UnreadAccount, error) {
	a, err := p.api(ctx)
	if err != nil {
		return nil, nil, err
	}
	named := []string{a.project}
	for _, project := range p.o.Projects() {
		if project != "" && !slices.Contains(named, project) {
			named = append(named, project)
		}
	}
	var unread []cloud.UnreadAccount
	found, err := a.findProjects(ctx)
	if err != nil { // the API may be shut, and the named ones can be asked all the same
		unread = append(unread, cloud.UnreadAccount{Name: "projects that are not in the configuration", Found: true, Err: p.Refused(ctx, cloud.Place{Cloud: Name}, err)})
	}
	found = slices.DeleteFunc(found, func(project string) bool { return slices.Contains(named, project) })
	if n := len(found) - mostProjects; n > 0 {
		unread = append(unread, cloud.UnreadAccount{Name: found[mostProjects] + " and following ones", Found: true,
			Err: fmt.Errorf("the credentials see %d more projects than the %d that are listed; sweep with credentials that see fewer", n, mostProjects)})
		found = found[:mostProjects]
	}
	d, id := driver{p, refusals}, cloud.ClusterID{Installation: installation}
	shut := func(err error) bool {
		return said(err, "accessNotConfigured", "SERVICE_DISABLED", "BILLING_DISABLED", "billingNotActive")
	}
	nodes, failed := p.StopProvider.ListAccounts(ctx, &p.spread, slices.Concat(named, found), func(ctx context.Context, project string) ([]vm.Machine, error) {
		list, err := d.listProject(ctx, p.of(a, project), id, vm.ListScope{})
		if project != a.project && shut(err) {
			return nil, nil
		}
		return list, err
	})
	if err := failed[a.project]; err != nil {
		return nil, nil, err
	}
	for _, project := range slices.Concat(named, found) {
		if err := failed[project]; err != nil {
			unread = append(unread, cloud.UnreadAccount{Name: project, Found: !slices.Contains(named, project), Err: err})
		}
	}
	return nodes, unread, nil
}

// findProjects are the active projects that the credentials see, sorted, without those of
// Apps Script, which have no machines.
func (a *account) findProjects(ctx context.Context) (found []string, err error) {
	err = pages(ctx, a.finder, "/projects:search", url.Values{"query": {"state:ACTIVE"}, "pageSize": {"500"}}, func(page struct {
		Projects []struct {
			ID    string `json:"projectId"`
			State string `json:"state"`
		} `json:"projects"`
		Next string `json:"nextPageToken"`
	}) string {
		for _, p := range page.Projects {
			if p.State == "ACTIVE" && !strings.HasPrefix(p.ID, "sys-") {
				found = append(found, p.ID)
			}
		}
		return page.Next
	})
	slices.Sort(found)
	return found, err
}
