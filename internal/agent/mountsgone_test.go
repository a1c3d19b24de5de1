//go:build unix

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
)

// How long jobs wait depends on why a mount is not there, and on nothing that says less.
func TestHowLongJobsWaitForAMount(t *testing.T) {
	said := func(code mountapi.Code) error {
		return fmt.Errorf("mounting: %w", &mountapi.Error{Code: code, Message: string(code)})
	}
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		errs  []error // one a minute
		limit time.Duration
		since time.Duration
	}{
		{"the bucket is gone", []error{said(mountapi.NoBucket)}, mountsGone, 0},
		{"the store is away", []error{said(mountapi.Unavailable), said(mountapi.Unavailable)}, mountsGiveUp, 0},
		{"no credentials", []error{errNeedsCredentials}, mountsNoKeys, 0},
		{"credentials that are refused", []error{fmt.Errorf("%w: %w", errNeedsCredentials, said(mountapi.Denied))}, mountsNoKeys, 0},
		{"the server was told that it is gone", []error{said(mountapi.NoBucket), errNeedsCredentials}, mountsGone, 0},
		{"nobody has said why", []error{errReturning, errNeedsCredentials}, mountsNoKeys, 0},
		{"a reason is not forgotten", []error{said(mountapi.NoBucket), errReturning}, mountsGone, 0},
		{"it goes after a long wait", []error{errNeedsCredentials, errNeedsCredentials, said(mountapi.NoBucket)}, mountsGone, 2 * time.Minute},
	} {
		var m missingMount
		for i, err := range c.errs {
			m = m.next(err, start.Add(time.Duration(i)*time.Minute), mountsGone)
		}
		end := start.Add(c.since + c.limit)
		if m.over(end.Add(-1), mountsGone) || !m.over(end, mountsGone) {
			t.Errorf("%s: %+v, %v", c.name, m, m.patience(mountsGone))
		}
	}
}

// What is not stored on a mount that is not there fails the job that wrote it, and only that.
func TestTheBarrierOfAMountThatIsNotThere(t *testing.T) {
	now := time.Unix(1000, 0)
	cached := mountapi.Spec{Path: "/home/u/m", URL: "s3://b", Mode: mountapi.Cached}
	direct := cached
	direct.Mode = mountapi.Direct
	gone := missingMount{now.Add(-mountsGone), &mountapi.Error{Code: mountapi.NoBucket, Message: "there is no bucket"}}
	away := missingMount{now.Add(-time.Hour), &mountapi.Error{Code: mountapi.Unavailable, Message: "no answer"}}
	left := &mountapi.Error{Code: mountapi.NotMounted, Files: []mountapi.File{{Mount: cached.Path, Path: "x"}}, More: 2}
	for _, c := range []struct {
		name          string
		m             missingMount
		spec          mountapi.Spec
		answer        error
		done          bool
		lost, trouble string
	}{
		{"files that cannot be stored", gone, cached, left, false, "/home/u/m/x and 2 more: s3://b is not mounted at /home/u/m: there is no bucket", ""},
		{"not yet", missingMount{now, gone.err}, cached, left, false, "", "there is no bucket"},
		{"nothing is left", gone, cached, &mountapi.Error{Code: mountapi.NotMounted}, true, "", ""},
		{"the process knows no such answer", gone, cached, &mountapi.Error{Code: mountapi.NotFound}, false, "files below /home/u/m: ", ""},
		{"there is no process", gone, cached, errors.New("no answer"), false, "files below /home/u/m: ", ""},
		{"a store that is away", away, cached, left, false, "", "no answer"},
		{"files that are stored when they are closed", gone, direct, errors.New("no answer"), true, "", ""},
		{"it came back", missingMount{}, cached, nil, true, "", ""},
	} {
		st := c.m.flushed(c.spec, c.answer, now, mountsGone)
		if st.Done != c.done || !strings.Contains(st.Lost, c.lost) || (st.Lost == "") != (c.lost == "") || !strings.Contains(st.Trouble, c.trouble) {
			t.Errorf("%s: %+v", c.name, st)
		}
	}
}

func TestWhetherARankUsesAMount(t *testing.T) {
	for _, c := range []struct {
		spec rankSpec
		want bool
	}{
		{rankSpec{Uses: []string{"~/data"}}, true},
		{rankSpec{Uses: []string{"/home/u/data/"}}, true},
		{rankSpec{Uses: []string{"~/other"}}, false},
		{rankSpec{Script: "cat ~/data/x"}, true},
		{rankSpec{Script: "cat ${HOME}/data/x"}, true},
		{rankSpec{Env: map[string]string{"DATA": "/home/u/data"}}, true},
		{rankSpec{Workdir: "data/sub"}, true},
		{rankSpec{Script: "cat ~/data2/x; cat ~/data"}, true},
		{rankSpec{Script: "cat ~/data2/x ~/data-old"}, false},
		{rankSpec{Script: "nvidia-smi", Workdir: "~/sky_workdir"}, false},
	} {
		if got := usesMount(&c.spec, "/home/u/data", "/home/u"); got != c.want {
			t.Errorf("%+v: %v", c.spec, got)
		}
	}
}
