//go:build e2e && linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cli"
	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/test/commands"
	"github.com/skypilot-go/sky/test/harness"
)

// TestNamedCommandsWork runs every command that help, a hint or an error names, on a
// server of its own with what the command is about: it succeeds, or fails for a reason
// that [refusals] gives, which is never about the form of the command.
func TestNamedCommandsWork(t *testing.T) {
	t.Parallel()
	s := newShown(t)
	inOrder := make([][]shownCommand, len(lastly))
	var free []shownCommand
	all := shownCommands(t)
	for _, table := range [][]reason{elsewhere, endless, refusals} {
		for _, r := range table {
			if !slices.ContainsFunc(all, func(c shownCommand) bool { return why([]reason{r}, c.line) != "" }) {
				t.Errorf("no command is like %q any more", r.commands)
			}
		}
	}
	for _, c := range all {
		at := slices.IndexFunc(lastly, func(r *regexp.Regexp) bool { return r.MatchString(c.line) && !strings.HasSuffix(c.line, " -h") })
		switch {
		case why(elsewhere, c.line) != "", matches(fragments, c.line), slices.Contains(prepared, asked(c.line)):
		case at < 0:
			free = append(free, c)
		default:
			inOrder[at] = append(inOrder[at], c)
		}
	}
	var group sync.WaitGroup
	next := make(chan shownCommand)
	for range 4 {
		group.Go(func() {
			for c := range next {
				s.check(c)
			}
		})
	}
	for _, c := range free {
		next <- c
	}
	close(next)
	group.Wait()
	for _, several := range inOrder {
		for _, c := range several {
			s.check(c)
		}
	}
}

// A shownCommand is a line of shell that help, a hint or an error shows.
type shownCommand struct{ line, at string }

// A reason belongs to commands, by a regular expression.
type reason struct{ commands, text string }

// lastly are commands that change what others need, in the order in which they run.
var lastly = compiled(
	`^sky bench down bert -e`, `^sky bench down`, `^sky bench delete bert`, `^sky bench delete`,
	`^sky serve down .*--replica-id`,
	`^sky serve update chat .*--weight 10$`, `^sky serve rollback`, `^sky serve update .*; sky serve promote`, `^sky serve update chat`,
	`^sky serve down chat`, `^sky serve down`,
	`^sky autostop `,
	`^sky cancel `,
	`^sky jobs cancel .*\d`, `^sky jobs cancel -n`, `^sky jobs cancel`, `^sky jobs schedule cancel \d`, `^sky jobs schedule cancel`,
	`^sky workspace (add-users|update)`, `^sky workspace remove-users`, `^sky workspace use [a-z]`, `^sky workspace use --clear`, `^sky workspace delete`,
	`^sky config set .*--project`, `^sky config unset .*--project`, `^sky config set `, `^sky config unset `,
	`^sky tokens set-role`, `^sky tokens rotate`, `^sky tokens revoke`,
	`^sky users set-role`, `^sky users import`, `^sky users delete`,
	`^sky api cancel [0-9a-z$]`,
	`^sky stop (-y )?dev`, `^sky start (-y )?dev`, `^sky stop -a`, `^sky start -a`,
	`^sky down 'train-`, `^sky down (-y )?dev`, `^sky down --purge`, `^sky down -a`,
	`^sky api cancel -a`, `^sky api (rotate-key|backup)`,
	`^sky api login`,
	`^sky api stop`, `^sky api restore`, `^sky api start --foreground`,
)

// fragments are parts of commands, of which the text around them says the rest.
var fragments = compiled(
	`^sky (down|down dev|down 1) gives`, `^sky sweep finds`, `^sky launch --retry-until-up$`, `^sky exec dev$`, `^sky audit --cluster$`,
	`^sky catalog fetch aws$`, `^sky launch --workspace`, `^sky admin deploy$`,
)

// elsewhere are commands that need what this test has not.
var elsewhere = []reason{
	{`^sky volumes (apply|delete)`, "volumes are on Kubernetes or RunPod"},
	{`^sky .*--infra (fluffycloud|docker|kubernetes)|^sky (down|stop|start) (-y )?(one|box)\b`, "a cloud, a container engine or Kubernetes"},
	{`^sky launch .*--clone-disk-from`, "a cloud with disks"},
	{`^sky .*--assume-enabled aws,gcp`, "price lists of all of them"},
	{`^sky api start --accept-database`, "a server that refuses its database"},
	{`^sky storage delete`, "buckets are at a cloud"},
	{`^sky (local (up|down)|ssh (up|down)|status-kubernetes)`, "Kubernetes, or machines with sshd"},
	{`^sky (catalog (refresh|fetch))`, "the network"},
	{`^sky api logout`, "a server of another machine"},
	{`^sky cpunode --cpus 16`, "a machine of that size"},
	{`^sky gpunode --gpus V100 --tmux`, "a terminal"},
}

// endless are commands that go on until they are interrupted.
var endless = []reason{
	{`^sky api logs --server-logs$`, "follows"},
	{`^sky api start --foreground$`, "serves"},
	{`^sky serve balancer --server`, "serves"},
	{`^sky serve logs (--controller |--load-balancer )?chat( 1)?$`, "follows"},
	{`^sky ssh dev -N`, "forwards"},
}

const (
	notEnabled = `not enabled|does not offer|no enabled infrastructure can run|ResourcesMismatchError`
	notYet     = `NotSupportedError`
)

// refusals are the texts of the errors that commands end with here.
var refusals = []reason{
	{`^sky launch -c dev --gpus|^sky launch .*--infra (aws|k8s|ssh)|^sky exec .*--gpus A100`, notEnabled},
	{`^sky launch --dryrun --gpus H100$`, notEnabled},
	{`^sky (gpunode|tpunode|cpunode -c build)`, notEnabled},
	{`^sky bench launch .*--gpus`, notEnabled},
	{`^sky ssh dev -- nvidia-smi`, `nvidia-smi`},
	{`^sky gpus label`, notYet},
	{`^sky jobs pool (apply|down|logs)|^sky jobs launch (-p|--pool) `, notYet},
	{`^sky sweep aws gcp`, `is not set up`},
}

func compiled(texts ...string) (out []*regexp.Regexp) {
	for _, t := range texts {
		out = append(out, regexp.MustCompile(t))
	}
	return out
}

func matches(list []*regexp.Regexp, line string) bool {
	return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(line) })
}

func why(table []reason, line string) string {
	if strings.HasSuffix(line, " -h") {
		return ""
	}
	for _, r := range table {
		if regexp.MustCompile(r.commands).MatchString(line) {
			return r.text
		}
	}
	return ""
}

// shown is where the commands run.
type shown struct {
	t   *testing.T
	w   *workstation
	env []string
}

// newShown starts a server with logins, and makes what the commands are about.
func newShown(t *testing.T) *shown {
	t.Helper()
	h := harness.New(t)
	h.Env = append(h.Env, "ENABLE_BASIC_AUTH=true", "ENABLE_SERVICE_ACCOUNTS=true")
	w := of(h)
	s := &shown{t: t, w: w}
	bin := filepath.Join(w.home, "bin")
	for _, kv := range w.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			kv = "PATH=" + bin + ":" + path
		}
		s.env = append(s.env, kv)
	}
	for name, text := range files {
		w.write(name, text)
	}
	if err := os.Symlink(binary, filepath.Join(bin, "sky")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(bin, "pass"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "URL="+w.url(""), fmt.Sprintf("PORT=%d", porttest.Free(t)), fmt.Sprintf("PORT2=%d", porttest.Free(t)), fmt.Sprintf("PORT3=%d", porttest.Free(t)))
	w.write("service.yaml", strings.Replace(servedTask(t, "local", "1", "replicas: 1"), "min_requests: 20", "error_margin: 1", 1)) // no canary is rolled back by itself
	w.sky("api", "start")
	for _, line := range prepared {
		if out, code := s.run(line, 2*time.Minute); code != 0 {
			t.Fatalf("%s: exit %d\n%s", line, code, out)
		}
	}
	eventually(t, "the service is ready", 2*time.Minute, func() bool { c := w.service(); return c != nil && c.Status == "READY" })
	for id := range w.requestsOf("sky.launch") {
		s.env = append(s.env, "REQUEST="+id)
	}
	return s
}

// run runs a line of shell; one that does not end in time is interrupted, and its exit
// code is -1.
func (s *shown) run(line string, limit time.Duration) (string, int) {
	var out bytes.Buffer
	c := exec.Command("bash", "-c", line)
	c.Env, c.Dir = s.env, s.w.home
	if strings.HasPrefix(line, "sky task ") {
		c.Dir = filepath.Join(s.w.home, "tasks")
	}
	if strings.HasPrefix(line, "sky users ") {
		c.Stdin = strings.NewReader("a long password\n")
	}
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = 10 * time.Second
	if err := c.Start(); err != nil {
		return err.Error(), 1
	}
	late := time.AfterFunc(limit, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	if !late.Stop() {
		return out.String(), -1
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode()
	}
	return out.String(), 0
}

// check runs one command.
func (s *shown) check(c shownCommand) {
	limit := time.Minute
	goesOn := why(endless, c.line) != ""
	if goesOn {
		limit = time.Second
	}
	out, code := s.run(asked(c.line), limit)
	switch text := why(refusals, c.line); {
	case code == -1 && goesOn, code == 0 && text == "":
	case code != 0 && text != "" && regexp.MustCompile(text).MatchString(out):
	default:
		s.t.Errorf("%s (%s): exit %d\n%s", c.line, c.at, code, out)
	}
}

// asked is a line whose commands do not ask for a confirmation.
func asked(line string) string {
	words := strings.Fields(line)
	for n := min(4, len(words)); n > 1; n-- {
		of, known := options[strings.Join(words[1:n], " ")]
		if known && words[0] == "sky" {
			if of["-y"] && !slices.Contains(words, "-y") && !slices.Contains(words, "-h") {
				return strings.Join(slices.Insert(words, n, "-y"), " ")
			}
			break
		}
	}
	return line
}

// files are what commands read, by name.
var files = map[string]string{
	"task.yaml":           "run: echo task\n",
	"train.yaml":          "name: train\nenvs: {MODEL: small}\nrun: echo train\n",
	"train.py":            "print('train')\n",
	"sweep.yaml":          "run: echo $SKYPILOT_JOB_RANK\n",
	"pool.yaml":           "pool: {workers: 1}\n",
	"bench.yaml":          "resources: {candidates: [{infra: local, cpus: 1}, {infra: local, cpus: 2}]}\nrun: echo bench\n",
	"nightly.yaml":        "name: nightly\nschedule: {cron: '30 3 * * *'}\nrun: echo nightly\n",
	"spot.yaml":           "service: {readiness_probe: /, replica_policy: {min_replicas: 1, max_replicas: 2, target_qps_per_replica: 1, base_ondemand_fallback_replicas: 1}}\nresources: {ports: 8080, use_spot: true}\nrun: exec sleep 1000\n",
	"traces/a":            "1\n2\n3.5\n",
	"zones/a.json":        `{"metadata": {"gap_seconds": 195}, "data": [0, 1, 1]}`,
	"research.yaml":       "private: true\nallowed_users: [ada, bob]\n",
	"examples/hello.yaml": "run: echo hello\n",
	"batch.yaml":          "private: true\nallowed_users: [ada]\n",
	"users.csv":           "username,password,role\ncarol,a long password,viewer\n",
	"server.yaml":         "allowed_clouds: [local]\n",
	".sky.yaml":           "active_workspace: default\n",
	"bin/pass":            "#!/bin/sh\necho a long password\n",
	"tasks/task.yaml":     "run: echo task\n",
	"tasks/train.yaml":    "envs: {MODEL: small}\nrun: echo $MODEL\n",
	"tasks/jobs/a.yaml":   "run: echo a\n",

	".sky/config.yaml": "catalogs: {offline: true}\n",
	".sky/catalogs/v8/aws/vms.csv": "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n" +
		"m6i.2xlarge,,,8.0,32.0,,0.384,0.14,us-east-1,use1-az1\n" +
		"p4d.24xlarge,A100,8.0,96.0,1152.0,,32.77,9.8,us-east-1,use1-az1\n" +
		"p5.48xlarge,H100,8.0,192.0,2048.0,,98.32,30.1,us-east-1,use1-az1\n",
}

// prepared is typed before anything else.
var prepared = []string{
	"pass show sky/ada | sky users create ada",
	"sky users create bob < <(pass)",
	"sky users create eve < <(pass)",
	"sky tokens create ci --expires-in-days 90",
	"sky tokens create other > token",
	"sky workspace create research --private --user ada --user bob",
	"sky workspace create team-a",
	"sky workspace create batch -f batch.yaml",
	"sky launch -y -c dev --num-nodes 2 task.yaml",
	"sky exec dev task.yaml",
	"sky launch -y -d -c train-1 task.yaml",
	"sky launch -y -d -c purged task.yaml",
	"sky serve up -y -n chat service.yaml",
	"sky bench launch bench.yaml -b bert -i 10 -y",
	"sky jobs launch -y -d train.yaml",
	"sky jobs launch -y -d train.yaml",
	"sky jobs launch -y train.yaml",
	"sky jobs launch -y -d nightly.yaml",
}

// options are those of each command, without the word sky.
var options = map[string]map[string]bool{}

// shownCommands are all of them, with their placeholders filled in, each once.
func shownCommands(t *testing.T) []shownCommand {
	t.Helper()
	paths := map[string]bool{}
	for _, d := range cli.Reference() {
		path := strings.TrimPrefix(d.Path, "sky ")
		paths[path] = true
		options[path] = map[string]bool{}
		for _, o := range d.Options {
			for _, n := range strings.FieldsFunc(o.Names, func(r rune) bool { return r == ',' || r == ' ' }) {
				options[path][n] = true
			}
		}
	}
	seen := map[string]bool{}
	var out []shownCommand
	add := func(line, at string) {
		if line != "" && !seen[asked(line)] {
			seen[asked(line)] = true
			out = append(out, shownCommand{line, at})
		}
	}
	mention := func(words []string, at string) {
		line := strings.Join(words, " ")
		if paths[line] { // a command's name, not all of a command
			add("sky "+line+" -h", at)
			return
		}
		add(filled("sky "+line), at)
	}
	for _, d := range cli.Reference() {
		for line := range strings.Lines(d.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			add(filled(strings.TrimSpace(line)), "example of "+d.Path)
		}
		for line := range strings.Lines(d.Short + "\n" + d.Long) {
			for _, c := range commands.Named(line) {
				mention(c, "help of "+d.Path)
			}
		}
	}
	err := commands.EachText("../..", func(at, text string) {
		for line := range strings.Lines(text) {
			for _, c := range commands.Named(line) {
				mention(c, at)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	for _, page := range append(pages, "../../README.md") {
		if filepath.Base(page) == "quickstart.md" { // see TestQuickstart
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				inside = !inside
			}
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
			if inside && strings.HasPrefix(line, "sky ") && !strings.HasSuffix(line, "\\") {
				add(filled(strings.TrimSpace(line)), page)
			}
		}
	}
	return out
}

// placeholders are what stands for something that the reader has, and what it is here:
// "1" is what the sources compute. $URL and the like are in the environment.
var placeholders = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`\bREPLICA_ID\b`), "1"},
	{regexp.MustCompile(`--replica-id 2`), "--replica-id 1"},
	{regexp.MustCompile(` \[[^\]]*\]`), ""},
	{regexp.MustCompile(`<cluster(-name)?>|NEW_NAME`), "dev"},
	{regexp.MustCompile(`<(managed )?(job|job-)? ?(ID|id)s?>|\bIDS\b`), "1"},
	{regexp.MustCompile(`<service-name>`), "chat"},
	{regexp.MustCompile(`<job-name>`), "train"},
	{regexp.MustCompile(`<yaml_file>|yaml_file|TASK\.yaml`), "task.yaml"},
	{regexp.MustCompile(`SERVICE_YAML`), "service.yaml"},
	{regexp.MustCompile(`CLUSTER_YAML`), "cluster.yaml"},
	{regexp.MustCompile(`KEY=VALUE`), "jobs.bucket=s3://my-bucket"},
	{regexp.MustCompile(`^sky (down|stop|start|queue|logs|autostop|ssh|exec|cancel|status)( -r| --refresh| --hook| --purge)? (1|work|NAME)\b`), "sky $1$2 dev"},
	{regexp.MustCompile(`^sky launch -c 1( 1)?$`), "sky launch -c dev task.yaml"},
	{regexp.MustCompile(`^sky launch -c dev$`), "sky launch -c dev task.yaml"},
	{regexp.MustCompile(`^sky launch (.*)--(assume-enabled|infra) 1 `), "sky launch $1--$2 aws "},
	{regexp.MustCompile(`^sky launch --infra k8s/1`), "sky launch --infra k8s/my-context"},
	{regexp.MustCompile(`^sky status dev dev$`), "sky status dev"},
	{regexp.MustCompile(`^sky check (1|NAME)`), "sky check aws"},
	{regexp.MustCompile(`^sky catalog fetch 1`), "sky catalog fetch aws"},
	{regexp.MustCompile(`^sky serve (status|down|logs|update)( --load-balancer| --controller| --purge)? (1|NAME)\b`), "sky serve $1$2 chat"},
	{regexp.MustCompile(`^sky bench (down|delete) 1`), "sky bench $1 bert"},
	{regexp.MustCompile(`^sky bench launch train.yaml -b bert -i`), "sky bench launch bench.yaml -b bert -i"},
	{regexp.MustCompile(`^sky jobs pool (\w+)( -p| --pool)? 1\b`), "sky jobs pool $1$2 gpus"},
	{regexp.MustCompile(`^sky jobs launch --pool 1`), "sky jobs launch --pool gpus"},
	{regexp.MustCompile(`^sky jobs launch -n train$`), "sky jobs launch -n train train.yaml"},
	{regexp.MustCompile(`^sky api (logs|cancel) (1a2b3c4d|1)$`), "sky api $1 $$REQUEST"},
	{regexp.MustCompile(`^sky api restore FILE`), "sky api restore sky-backup.tar.gz"},
	{regexp.MustCompile(`https://sky\.example\.com|\bURL\b`), "$$URL"},
	{regexp.MustCompile(`^sky api login -e 1$`), "sky api login -e $$URL"},
	{regexp.MustCompile(`sky_…`), "$$(cat token)"},
	{regexp.MustCompile(`/var/lib/`), "~/"},
	{regexp.MustCompile(`\b8080:80`), "$$PORT3:80"},
	{regexp.MustCompile(`9090|\b8888`), "$$PORT"},
	{regexp.MustCompile(`^sky ssh dev -p \$PORT -p 6006`), "sky ssh dev -p 0:8888 -p 0:6006"},
	{regexp.MustCompile(`^sky ssh dev -N -p \$PORT`), "sky ssh dev -N -p 0:8888"},
	{regexp.MustCompile(`\b5432:`), "$$PORT2:"},
	{regexp.MustCompile(`^sky tokens create (NAME|ci --expires-in-days 90 > token)$`), "sky tokens create another"},
	{regexp.MustCompile(`^sky serve (promote) chat$`), "sky serve update -y chat service.yaml --mode canary --weight 10; sky serve $1 chat"},
	{regexp.MustCompile(`^sky users export > users.csv`), "sky users export > exported.csv"},
	{regexp.MustCompile(`^sky down --purge dev$`), "sky down --purge purged"},
	{regexp.MustCompile(`^sky stop old$`), "sky stop purged"},
	{regexp.MustCompile(`^sky workspace update 1$`), "sky workspace update research"},
	{regexp.MustCompile(`^sky users create ada --role`), "sky users create zoe --role"},
	{regexp.MustCompile(`^sky workspace create research --private --user ada$`), "sky workspace create research2 --private --user ada"},
	{regexp.MustCompile(`^sky workspace use NAME`), "sky workspace use research"},
	{regexp.MustCompile(`^sky task check FILE`), "sky task check task.yaml"},
	{regexp.MustCompile(`^sky jobs launch (.*)new-pool`), "sky jobs launch ${1}pool"},
	{regexp.MustCompile(`python train\.py`), "python3 ~/train.py"},
}

func filled(line string) string {
	for _, p := range placeholders {
		line = p.from.ReplaceAllString(line, p.to)
	}
	return line
}
