//go:build attack && linux

package attack

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// settleTime is how long unfinished requests, and what is recorded, may take to
// agree with what exists once nothing is killed any more.
const settleTime = 4 * time.Minute

// quiet waits until nothing is under way and compares what is recorded with what
// exists.
func (s *storm) quiet() {
	s.requestsEnd()
	// Refreshing may take more than one look: an agent is started again first.
	var wrong []string
	if !harness.Within(settleTime, func() bool { wrong = s.discrepancies(); return len(wrong) == 0 }) {
		s.add("wrong statuses", len(wrong))
		for _, each := range wrong {
			s.errorf("at a quiet point: %s", each)
		}
	}
	s.programs()
	s.logs()
}

// requestsEnd waits until no request that changes something is under way. Jobs of a
// manager's may go on.
func (s *storm) requestsEnd() {
	var open []string
	ok := harness.Within(settleTime, func() bool {
		open = nil
		var raw []map[string]any
		if err := s.w.JSON(&raw, "api", "status", "-a", "-l", "all", "-o", "json"); err != nil {
			open = append(open, err.Error())
			return false
		}
		for _, row := range raw {
			status := fmt.Sprint(row["status"])
			if status == "PENDING" || status == "RUNNING" {
				open = append(open, fmt.Sprint(row["name"], " ", row["request_id"], " ", status))
			}
		}
		return len(open) == 0
	})
	if !ok {
		s.add("requests that never end", len(open))
		s.errorf("requests go on %v after the last kill: %v", settleTime, open)
	}
}

// record is what status tells about a cluster.
type record struct {
	Name    string
	Status  string
	OnCloud string `json:"cluster_name_on_cloud"`
	Nodes   int
	Managed bool `json:"is_managed"`
}

// discrepancies are the differences between records and what exists.
func (s *storm) discrepancies() (wrong []string) {
	var records []record
	if err := s.w.JSON(&records, "status", "-r", "-o", "json"); err != nil {
		return []string{err.Error()}
	}
	var jobs []harness.ManagedJob
	if err := s.w.JSON(&jobs, "jobs", "queue", "-o", "json", "--all"); err != nil {
		return []string{err.Error()}
	}
	exist := s.nodes()
	known := map[string]bool{}
	for _, c := range records {
		known[c.OnCloud] = true
		running, total := 0, 0
		for _, n := range exist[c.OnCloud] {
			total++
			if n {
				running++
			}
		}
		switch c.Status {
		case "UP":
			if running != c.Nodes || total != c.Nodes {
				wrong = append(wrong, fmt.Sprintf("cluster %s is UP with %d nodes, and %d of %d run", c.Name, c.Nodes, running, total))
			}
		case "STOPPED":
			if running != 0 || total != c.Nodes {
				wrong = append(wrong, fmt.Sprintf("cluster %s is STOPPED with %d nodes, and %d of %d run", c.Name, c.Nodes, running, total))
			}
		case "INIT":
			if total == 0 {
				wrong = append(wrong, fmt.Sprintf("cluster %s is INIT and has no machine", c.Name))
			}
		default:
			wrong = append(wrong, fmt.Sprintf("cluster %s is %s", c.Name, c.Status))
		}
	}
	for name, nodes := range exist {
		if known[name] || s.ofJob(name, jobs) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%d machines of %s have no record", len(nodes), name))
	}
	return wrong
}

// ofJob reports whether a name on a cloud is that of a cluster of a managed job that
// goes on: the task's name, the job's number, and the user's hash.
func (s *storm) ofJob(onCloud string, jobs []harness.ManagedJob) bool {
	for _, j := range jobs {
		if j.Schedule != "DONE" && strings.Contains(onCloud, fmt.Sprintf("-%d-", j.JobID)) && strings.HasPrefix(onCloud, "job") {
			return true
		}
	}
	return false
}

// nodes are the nodes that exist, by their cluster's name on the cloud, and
// whether each runs.
func (s *storm) nodes() map[string][]bool {
	out := map[string][]bool{}
	if s.cloud != nil {
		for _, m := range s.cloud.Machines() {
			name := m.Tags[tagCluster]
			out[name] = append(out[name], m.State == "running")
		}
		return out
	}
	for _, dir := range s.w.Folders() {
		name := filepath.Base(filepath.Dir(dir))
		out[name] = append(out[name], len(harness.ProcessesOf(dir)) > 0)
	}
	return out
}

// programs compares what programs noted with what was asked for: none runs
// twice, unless an attempt of a managed job allows it.
func (s *storm) programs() {
	seen := harness.Lines(s.runs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for mark, p := range s.marks {
		if n := seen["start "+mark]; !p.managed && n > 1 {
			s.add("ran twice", 1)
			s.t.Errorf("%s ran %d times", mark, n)
		}
	}
}

var serverFault = regexp.MustCompile(`msg="request served".* path=(\S+) status=(5\d\d)`)

// logs looks for panics and answers that tell of the server's own failure.
func (s *storm) logs() {
	var files []string
	if s.team != nil {
		for _, one := range s.team.Servers {
			files = append(files, filepath.Join(one.Home, "log"), filepath.Join(one.Home, ".sky/api_server/server.log"))
		}
	} else {
		files = append(files, s.w.ServerLog())
	}
	agents, _ := filepath.Glob(filepath.Join(s.w.Home, ".sky/local/*/node-*/home/.sky/agent/agent.log"))
	files = append(files, agents...)
	if s.cloud != nil {
		agents, _ := filepath.Glob(filepath.Join(s.cloud.Dir, "machines/*/home/.sky/agent/agent.log"))
		files = append(files, agents...)
	}
	for _, f := range files {
		for _, line := range faults(f) {
			if s.told[line] { // at an earlier quiet point, or in another log
				continue
			}
			s.told[line] = true
			if strings.Contains(line, "status=503") {
				s.add("503 while it went down", 1) // clients repeat those
				continue
			}
			s.add("5xx and panics", 1)
			s.errorf("%s: %s", f, line)
		}
	}
}

// faults are the lines of a log that tell of an answer 5xx or a panic.
func faults(file string) (found []string) {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 10<<20)
	for in.Scan() {
		line := in.Text()
		if m := serverFault.FindStringSubmatch(line); m != nil && (m[1] != "/api/get" || m[2] != "500") || // 500 there is how a request failed, as clients expect it
			strings.HasPrefix(line, "panic:") || strings.Contains(line, "handler panicked") || strings.Contains(line, "DATA RACE") ||
			strings.HasPrefix(line, "fatal error:") {
			found = append(found, line)
		}
	}
	return found
}

// end waits for the last jobs, judges them, and takes everything down.
func (s *storm) end() {
	var open []string
	if !harness.Within(settleTime, func() bool {
		open = nil
		var jobs []harness.ManagedJob
		if err := s.w.JSON(&jobs, "jobs", "queue", "-o", "json", "--all"); err != nil {
			open = []string{err.Error()}
			return false
		}
		for _, j := range jobs {
			if j.Schedule != "DONE" {
				open = append(open, fmt.Sprintf("%+v", j))
			}
		}
		return len(open) == 0
	}) {
		s.errorf("managed jobs do not end: %v", open)
	}
	s.jobs()
	s.quiet()
	if out, code := s.w.RunFor(5*time.Minute, "down", "-a", "-y"); code != 0 {
		s.errorf("sky down -a: exit %d\n%s", code, tail(out))
	}
	var left []string
	if !harness.Within(settleTime, func() bool {
		left = nil
		for name, nodes := range s.nodes() {
			left = append(left, fmt.Sprintf("%s: %d machines", name, len(nodes)))
		}
		for pid := range s.w.Processes() {
			if env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); strings.Contains(string(env), "SKY_NODE=") {
				left = append(left, fmt.Sprintf("process %d", pid))
			}
		}
		if len(left) > 0 && s.cloud != nil {
			// A call of a dead server that was still on its way has no owner.
			out, _ := s.w.Run("sweep", "--grace", "0", "--terminate", "-y")
			if strings.Contains(out, "ended") {
				s.add("strays of lost answers, swept", 1)
			}
		}
		return len(left) == 0
	}) {
		s.add("leaks", len(left))
		s.errorf("after sky down -a: %v", left)
	}
	if s.cloud != nil {
		for _, f := range s.cloud.Inventory().Firewalls {
			s.add("leaks", 1)
			s.errorf("a firewall is left: %+v", f)
		}
	}
}

// unknown is how the events of a managed job say that nobody knows how the attempt
// before ended, or that its end counts for nothing as its machine went with it.
var unknown = regexp.MustCompile(`(?i)outcome|not known|unknown|cannot tell|could not tell|may have (ended|finished|run)|may run again|ended [A-Z]+ as its machine went`)

// jobs judges the managed jobs once all have ended.
func (s *storm) jobs() {
	var jobs []harness.ManagedJob
	if err := s.w.JSON(&jobs, "jobs", "queue", "-o", "json", "--all"); err != nil {
		s.errorf("%v", err)
		return
	}
	seen := harness.Lines(s.runs)
	byName := map[string]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		name := j.TaskName
		if s.marks[name] == nil {
			name = j.JobName
		}
		p := s.marks[name]
		if p == nil {
			s.t.Errorf("nobody asked for job %+v", j)
			continue
		}
		s.add("managed jobs judged", 1)
		s.add("managed job "+j.Status, 1)
		byName[name]++
		starts, ends := seen["start "+name], seen["end "+name]
		wrong := ""
		switch {
		case j.Status == "CANCELLED" && !s.cancelled[name]:
			wrong = "was CANCELLED, and nobody cancelled it"
		case j.Status == "CANCELLED":
		case j.Status == "SUCCEEDED" && (p.exit != 0 || ends == 0):
			wrong = fmt.Sprintf("SUCCEEDED, and its program ended %d times, with exit code %d", ends, p.exit)
		case j.Status == "FAILED" && (p.exit == 0 || ends == 0):
			wrong = fmt.Sprintf("FAILED, and its program ended %d times, with exit code %d", ends, p.exit)
		case j.Status != "SUCCEEDED" && j.Status != "FAILED":
			wrong = "ended in a way that nothing accounts for"
		}
		if wrong == "" && starts > j.Recoveries+1 {
			wrong = fmt.Sprintf("ran %d times in %d attempts", starts, j.Recoveries+1)
		}
		if wrong == "" && ends > 1 {
			s.add("ran again after its end", 1)
			if log := s.controllerLog(j.JobID); !unknown.MatchString(log) {
				wrong = fmt.Sprintf("ended %d times, and nothing tells that the outcome was unknown", ends)
			}
		}
		if wrong != "" {
			s.add("wrong statuses", 1)
			s.add("wrong", 1)
			s.t.Errorf("job %d (%s, %d recoveries) %s; %s\n%s", j.JobID, name, j.Recoveries, wrong, j.Failure, tail(s.controllerLog(j.JobID)))
		}
	}
	for name, p := range s.marks {
		if p.managed && (byName[name] > 1 || p.must && byName[name] != 1) {
			s.add("wrong", 1)
			s.t.Errorf("job %s is on record %d times; its launch said so: %v", name, byName[name], p.must)
		}
	}
}

// controllerLog is what the controller of a job says.
func (s *storm) controllerLog(id int) string {
	out, _ := s.w.Run("jobs", "logs", "--controller", "--no-follow", fmt.Sprint(id))
	return out
}
