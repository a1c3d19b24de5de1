package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Trace is a named list of arrival times, in seconds from the start, ascending.
type Trace struct {
	Name     string
	Requests []float64
}

// Zone is where spot machines are to be had, and when.
type Zone struct {
	Place cloud.Place
	Price float64 // $ an hour; 0: as everywhere
	Gap   time.Duration
	Up    []bool // for each gap; it begins again when it is over
}

func (z *Zone) at(seconds float64) bool {
	if len(z.Up) == 0 {
		return true
	}
	return z.Up[int(seconds/z.Gap.Seconds())%len(z.Up)]
}

// Share is the share of time in which machines are to be had.
func (z *Zone) Share() float64 {
	n := 0
	for _, up := range z.Up {
		if up {
			n++
		}
	}
	return float64(n) / float64(max(len(z.Up), 1))
}

// ReadRequests reads every file of a folder as a trace: arrival times in seconds,
// one a line. Empty lines and those that begin with # are left out.
func ReadRequests(folder string) ([]Trace, error) {
	files, err := filesOf(folder, "")
	if err != nil {
		return nil, err
	}
	var out []Trace
	for _, file := range files {
		t, err := readTrace(file)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func filesOf(folder, ext string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && (ext == "" || strings.HasSuffix(e.Name(), ext)) {
			out = append(out, filepath.Join(folder, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the folder %s has no trace%s; put one file for each into it", folder, strings.TrimSuffix(" (*"+ext+")", " (*)"))
	}
	return out, nil
}

func readTrace(file string) (Trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return Trace{}, fmt.Errorf("reading traces: %w", err)
	}
	defer f.Close()
	t := Trace{Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at, err := strconv.ParseFloat(line, 64)
		if err != nil || at < 0 || math.IsInf(at, 0) || math.IsNaN(at) {
			return Trace{}, fmt.Errorf("%s:%d: %q is no time in seconds; write one number of at least 0 a line", file, n, line)
		}
		t.Requests = append(t.Requests, at)
	}
	if err := lines.Err(); err != nil {
		return Trace{}, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(t.Requests) == 0 {
		return Trace{}, fmt.Errorf("%s has no requests; write arrival times in seconds, one a line", file)
	}
	slices.Sort(t.Requests)
	return t, nil
}

var regionName = lazyregexp.New(`[a-z]+(?:-[a-z]+)+-?[0-9]+`)

// ReadZones reads the *.json files of a folder, one for each zone:
// {"metadata": {"gap_seconds": 195}, "data": [0, 1, …]} with the machines that
// were to be had at each sample. The zone is the name of the file; its region is
// the part of it that looks like one.
func ReadZones(folder string) ([]Zone, error) {
	files, err := filesOf(folder, ".json")
	if err != nil {
		return nil, err
	}
	var out []Zone
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading traces: %w", err)
		}
		var in struct {
			Metadata struct {
				Gap float64 `json:"gap_seconds"`
			} `json:"metadata"`
			Data []float64 `json:"data"`
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, fmt.Errorf("%s is no availability trace: %w", file, err)
		}
		if in.Metadata.Gap < 1 || len(in.Data) == 0 {
			return nil, fmt.Errorf(`%s is no availability trace: it needs "metadata": {"gap_seconds": at least 1} and "data": [0, 1, …]`, file)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		region := regionName.FindString(name)
		if region == "" {
			region = name
		}
		z := Zone{Place: cloud.Place{Cloud: "trace", Region: region, Zone: name}, Gap: time.Duration(in.Metadata.Gap * float64(time.Second))}
		for _, n := range in.Data {
			z.Up = append(z.Up, n > 0)
		}
		out = append(out, z)
	}
	return out, nil
}

// Traces made by seed.

// Requests makes the traces diurnal, bursts and ramps, whose highest rate, in
// requests a second, is the peak.
func Requests(span time.Duration, peak float64, seed uint64) []Trace {
	shapes := []struct {
		name string
		rate func(r *rand.Rand) func(hours float64) float64 // a share of the peak
	}{
		{"diurnal", func(*rand.Rand) func(float64) float64 {
			return func(h float64) float64 {
				return 0.1 + 0.9*math.Pow(0.5-0.5*math.Cos(2*math.Pi*(h-2)/24), 2) // highest at 14 o'clock
			}
		}},
		{"bursts", func(r *rand.Rand) func(float64) float64 {
			var from, to []float64
			for at := r.ExpFloat64() * 4; at < span.Hours(); at += 0.5 + r.ExpFloat64()*4 {
				from, to = append(from, at), append(to, at+(5+15*r.Float64())/60)
			}
			return func(h float64) float64 {
				for i := range from {
					if from[i] <= h && h < to[i] {
						return 1
					}
				}
				return 0.25
			}
		}},
		{"ramps", func(*rand.Rand) func(float64) float64 {
			return func(h float64) float64 { // up in two hours, high for three, down in one, nothing for two
				switch at := math.Mod(h, 8); {
				case at < 2:
					return at / 2
				case at < 5:
					return 1
				case at < 6:
					return 6 - at
				}
				return 0
			}
		}},
	}
	var out []Trace
	for i, s := range shapes {
		r := rand.New(rand.NewPCG(seed, uint64(i)+1))
		rate := s.rate(r)
		t := Trace{Name: s.name}
		for at := r.ExpFloat64() / peak; at < span.Seconds(); at += r.ExpFloat64() / peak {
			if r.Float64() < rate(at/3600) {
				t.Requests = append(t.Requests, at)
			}
		}
		out = append(out, t)
	}
	return out
}

// Zones makes the availability of nine zones in three regions: machines come and
// go by zone, for hours; regions have bad times in which most of their zones have
// none; now and then a day is bad everywhere.
func Zones(span time.Duration, seed uint64) []Zone {
	const gap = 195.0
	r := rand.New(rand.NewPCG(seed, 0x20e5))
	n := int(span.Seconds()/gap) + 1
	// chain is up for a share of the time, for so many hours at a time.
	chain := func(share, hours float64) []bool {
		out := make([]bool, n)
		up := r.Float64() < share
		left := 0.0
		for i := range out {
			if left <= 0 {
				mean := hours
				if !up {
					mean = hours * (1 - share) / share
				}
				left = r.ExpFloat64() * mean * 3600
			}
			out[i] = up
			if left -= gap; left <= 0 {
				up = !up
			}
		}
		return out
	}
	plenty := chain(0.84, 6*24)
	var out []Zone
	for region := range 3 {
		good := chain(0.74, 30)
		for z := range 3 {
			own := chain(0.7+0.29*r.Float64(), 2+18*r.Float64())
			up := make([]bool, n)
			for i := range up {
				// In bad times machines are left in two zones, one after the other.
				left := region*3+z == i/200%9 || region*3+z == (i/200+4)%9
				up[i] = own[i] && (good[i] && plenty[i] || left)
			}
			out = append(out, Zone{
				Place: cloud.Place{Cloud: "simulated", Region: fmt.Sprintf("region-%d", region+1), Zone: fmt.Sprintf("region-%d%c", region+1, 'a'+z)},
				Gap:   time.Duration(gap) * time.Second, Up: up, Price: 0.9 + 0.2*r.Float64(),
			})
		}
	}
	return out
}
