package task

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones must be known where none are installed

	"github.com/robfig/cron/v3"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Schedule says when a managed job is submitted again and again.
type Schedule struct {
	Cron     string // five fields, or a word such as @daily
	Timezone string // IANA name; "": UTC
	Missed   Missed
	Overlap  Overlap
}

// Missed says what becomes of the times at which no server ran.
type Missed string

// What becomes of missed times.
const (
	MissedOnce Missed = "once" // one run makes up for all of them (the default)
	MissedSkip Missed = "skip" // none does
	MissedAll  Missed = "all"  // each has its run
)

// Overlap says what happens when the run before has not ended.
type Overlap string

// What happens when the run before has not ended.
const (
	OverlapSkip  Overlap = "skip"  // this time is left out (the default)
	OverlapAllow Overlap = "allow" // both run
)

// cronParser reads what people know from crontab.
var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Location is the zone in which the schedule's times are meant.
func (s Schedule) Location() (*time.Location, error) {
	if s.Timezone == "" {
		return time.UTC, nil
	}
	if s.Timezone == "Local" {
		return nil, fmt.Errorf("a server has no zone of yours; write its name, such as Europe/Berlin")
	}
	l, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone; write a name such as Europe/Berlin or America/New_York", s.Timezone)
	}
	return l, nil
}

// Next is the first time of the schedule after t; the zero time if there is
// none within five years. Where clocks go forward, a time that does not exist
// is left out; where they go back, a time that comes twice counts once.
func (s Schedule) Next(t time.Time) (time.Time, error) {
	at, err := parseCron(s.Cron)
	if err != nil {
		return time.Time{}, err
	}
	zone, err := s.Location()
	if err != nil {
		return time.Time{}, err
	}
	next := at.Next(t.In(zone))
	for !next.IsZero() && again(t.In(zone), next) {
		next = at.Next(next)
	}
	return next.UTC(), nil
}

// again reports that next is the same time of the day as before, an hour of
// summer time later.
func again(before, next time.Time) bool {
	_, was := before.Zone()
	_, is := next.Zone()
	const clock = "2006-01-02 15:04"
	return is < was && before.Format(clock) == next.Format(clock)
}

func parseCron(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") {
		return nil, fmt.Errorf("%q has a zone in it; give it as timezone", text)
	}
	at, err := cronParser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no schedule: %s; write minute, hour, day of the month, month and day of the week, such as \"30 3 * * 1-5\", or @hourly, @daily, @weekly, @monthly",
			text, strings.TrimPrefix(err.Error(), "cron: "))
	}
	return at, nil
}

func checkCron(text string) error {
	at, err := parseCron(text)
	if err == nil && at.Next(time.Unix(0, 0).UTC()).IsZero() {
		return fmt.Errorf("%q never comes", text)
	}
	return err
}

func timezoneSchema() *schema.Spec {
	return checked(text(), func(s string) error { _, err := Schedule{Timezone: s}.Location(); return err }, `\S+`)
}

func scheduleSchema() *schema.Spec {
	times := checked(text(), checkCron, `\S.*`)
	return checked(text(), checkCron, `\S.*`).With(object(
		field{name: "cron", is: times, required: true,
			doc: "When: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @every 90m.", example: `"30 3 * * 1-5"`},
		field{name: "timezone", is: timezoneSchema(),
			doc: "The zone in which the times are meant.", def: "UTC", example: "Europe/Berlin"},
		field{name: "missed", is: choice(string(MissedOnce), string(MissedSkip), string(MissedAll)),
			doc: "Times at which no server ran: once makes up for all of them with one run, skip leaves them out, all runs each.", def: "once", example: "skip"},
		field{name: "overlap", is: choice(string(OverlapSkip), string(OverlapAllow)),
			doc: "When the run before has not ended: skip leaves this time out, allow runs both.", def: "skip", example: "allow"},
	))
}

func scheduleOf(n *yaml11.Node) *Schedule {
	if n == nil || n.IsNull() {
		return nil
	}
	s := &Schedule{Missed: MissedOnce, Overlap: OverlapSkip}
	if n.IsScalar() {
		s.Cron = n.Text
		return s
	}
	s.Cron, s.Timezone = textOf(n.Get("cron")), textOf(n.Get("timezone"))
	if m := n.Get("missed"); m != nil {
		s.Missed = Missed(m.Text)
	}
	if o := n.Get("overlap"); o != nil {
		s.Overlap = Overlap(o.Text)
	}
	return s
}

func (s *Schedule) tree() any {
	if s == nil {
		return nil
	}
	if s.Timezone == "" && (s.Missed == "" || s.Missed == MissedOnce) && (s.Overlap == "" || s.Overlap == OverlapSkip) {
		return s.Cron
	}
	n := yaml11.NewMap().Put("cron", s.Cron).PutText("timezone", s.Timezone)
	if s.Missed != MissedOnce {
		n.PutText("missed", string(s.Missed))
	}
	if s.Overlap != OverlapSkip {
		n.PutText("overlap", string(s.Overlap))
	}
	return n
}
