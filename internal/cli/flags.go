package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flags defines options the way all commands share them.
type flags struct{ *pflag.FlagSet }

// Annotations of pflag flags that the help page reads.
const (
	noteMeta  = "sky_meta"  // what stands after the option
	noteOff   = "sky_off"   // the option that switches it off
	noteUsage = "sky_usage" // what takes the place of the generated left column
)

func (f flags) note(name, key, value string) {
	fl := f.Lookup(name)
	if fl.Annotations == nil {
		fl.Annotations = map[string][]string{}
	}
	fl.Annotations[key] = []string{value}
}

// text is an option with any value.
func (f flags) text(p *string, name, short, help string) { f.StringVarP(p, name, short, *p, help) }

// texts is an option that may be given several times.
func (f flags) texts(p *[]string, name, short, help string) {
	f.StringArrayVarP(p, name, short, nil, help)
}

// on is an option without a value.
func (f flags) on(p *bool, name, short, help string) { f.BoolVarP(p, name, short, *p, help) }

// hide leaves options out of the help page.
func (f flags) hide(names ...string) {
	for _, n := range names {
		f.Lookup(n).Hidden = true
	}
}

// number is a whole number that may be absent.
func (f flags) number(p **int, name, short, help string) {
	f.VarP(&numberValue{p}, name, short, help)
}

// switchable is a pair of options, --name and --no-name; def holds when neither
// is given.
func (f flags) switchable(p *bool, name, short, help string) {
	f.onOff(func(v bool) { *p = v }, name, short, help)
}

// tri is a pair of options that may also be absent: nil.
func (f flags) tri(p **bool, name, short, help string) {
	f.onOff(func(v bool) { *p = &v }, name, short, help)
}

func (f flags) onOff(set func(bool), name, short, help string) {
	on := f.VarPF(switchValue{set, true}, name, short, help)
	on.NoOptDefVal = "true"
	off := f.VarPF(switchValue{set, false}, "no-"+name, "", "")
	off.NoOptDefVal, off.Hidden = "true", true
	f.note(name, noteOff, "no-"+name)
}

// choice is an option with one of some values, in any case.
func (f flags) choice(p *string, name, short, help string, values ...string) {
	f.VarP(&choiceValue{p, values}, name, short, help)
	f.note(name, noteMeta, "["+strings.Join(values, "|")+"]")
}

type numberValue struct{ p **int }

func (v *numberValue) String() string {
	if v == nil || v.p == nil || *v.p == nil {
		return ""
	}
	return strconv.Itoa(**v.p)
}
func (v *numberValue) Type() string { return "INTEGER" }
func (v *numberValue) Set(s string) error {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return fmt.Errorf("'%s' is not a whole number", s)
	}
	*v.p = &n
	return nil
}

type switchValue struct {
	set  func(bool)
	sets bool
}

func (switchValue) String() string   { return "" }
func (switchValue) Type() string     { return "bool" }
func (switchValue) IsBoolFlag() bool { return true }
func (v switchValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("takes no value")
	}
	v.set(b == v.sets)
	return nil
}

type choiceValue struct {
	p      *string
	values []string
}

func (v *choiceValue) String() string {
	if v == nil || v.p == nil {
		return ""
	}
	return *v.p
}
func (*choiceValue) Type() string { return "TEXT" }
func (v *choiceValue) Set(s string) error {
	i := slices.IndexFunc(v.values, func(x string) bool { return strings.EqualFold(x, s) })
	if i < 0 {
		return fmt.Errorf("'%s' is not one of '%s'", s, strings.Join(v.values, "', '"))
	}
	*v.p = v.values[i]
	return nil
}

// Groups of options that several commands have.

func (f flags) yes(p *bool) { f.on(p, "yes", "y", "Go on without asking.") }

func (f flags) async(p *bool) {
	f.switchable(p, "async", "", "Return once the request is submitted; do not wait for it.")
}

func (f flags) out(a *app) {
	f.choice(&a.output, "output", "o", "Format of the output.", "table", "json", "yaml")
}

// hedge is a setting that launches are often given by hand.
func (f flags) hedge(a *app) {
	fl := f.VarPF(&hedgeValue{&a.configs, ""}, "hedge", "", "Start another attempt to get machines beside one that takes longer than most; at most this many at once (2), the first to have them wins. Sets provision.hedge.")
	fl.NoOptDefVal = "2"
	f.note("hedge", noteMeta, "[=N]")
}

type hedgeValue struct {
	configs *[]string
	text    string
}

func (v *hedgeValue) String() string { return v.text }
func (*hedgeValue) Type() string     { return "INTEGER" }
func (v *hedgeValue) Set(s string) error {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 1 || n > 10 {
		return fmt.Errorf("'%s' is not a number from 1 to 10", s)
	}
	v.text = strconv.Itoa(n)
	*v.configs = append(*v.configs, "provision.hedge="+v.text)
	return nil
}

// grace are the options of commands that end clusters or jobs.
type grace struct {
	on      bool
	timeout *int
}

func (f flags) grace(g *grace) {
	f.on(&g.on, "graceful", "", "Let the jobs' processes end by themselves after SIGTERM, to save what they have.")
	f.number(&g.timeout, "graceful-timeout", "", "Kill what is left after this many seconds (default: one hour).")
}

func (f flags) waitFor(p *string) {
	f.choice(p, "wait-for", "", "What keeps the cluster busy: jobs and SSH sessions, jobs, or nothing.", "jobs_and_ssh", "jobs", "none")
}

// givenOptions are the options of a command line as they would be typed again, but
// for those named. Values of secrets are left out.
func givenOptions(fs *pflag.FlagSet, but ...string) string {
	if fs == nil {
		return ""
	}
	var words []string
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(but, f.Name) {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand
		}
		switch list, isList := f.Value.(pflag.SliceValue); {
		case isList:
			for _, v := range list.GetSlice() {
				if f.Name == "secret" {
					v, _, _ = strings.Cut(v, "=")
				}
				words = append(words, name, shellQuote(v))
			}
		case f.Value.Type() == "bool" && f.Value.String() == "false":
			words = append(words, "--"+f.Name+"=false")
		case f.Value.Type() == "bool":
			words = append(words, name)
		case f.Value.String() == "": // it has no effect, as the command has said
		case f.NoOptDefVal != "":
			words = append(words, "--"+f.Name+"="+shellQuote(f.Value.String()))
		default:
			words = append(words, name, shellQuote(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}
