package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// providerOver is one of that fake.
func providerOver(t *testing.T, f *fake, settings map[string]any) *Provider {
	return New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir(),
		Sections: func() catalog.Sections { return func(string) map[string]any { return settings } }})
}

func volumeOf(name string) cloud.Volume {
	return cloud.Volume{Installation: "i", Name: name, NameOnCloud: name, Type: cloud.VolumeClaim, SizeGB: 1}
}

// onVolumes is a cluster of one pod that mounts these.
func onVolumes(settings map[string]any, vs ...cloud.Volume) cloud.LaunchSpec {
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: settings}
	for i, v := range vs {
		spec.Volumes = append(spec.Volumes, cloud.VolumeMount{Path: fmt.Sprintf("/v%d", i), Volume: v})
	}
	return spec
}

func TestAPodWithVolumes(t *testing.T) {
	f := startFake(t)
	p := providerOver(t, f, nil)
	v, err := p.MakeVolume(t.Context(), volumeOf("data"))
	if err != nil {
		t.Fatal(err)
	}
	folder := cloud.Volume{Name: "disk", Type: cloud.VolumeHostPath, HostPath: "/mnt/disk"}
	spec := onVolumes(nil, v, v, folder, v)
	spec.Volumes[1].SubPath, spec.Volumes[1].Path = "a/b", "/v1/"
	spec.Volumes[3].Path = "~/home data/x"
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := asObj(f.objects[podsPath]["web-head"]["spec"])
	main := asObj(asList(pod["containers"])[0])
	got := map[string]string{}
	for _, m := range asList(main["volumeMounts"]) {
		m := asObj(m)
		got[text(m["mountPath"])] = text(m["name"]) + " " + text(m["subPath"])
	}
	for path, want := range map[string]string{"/v0": "sky-volume-0 ", "/v1": "sky-volume-0 a/b", "/v2": "sky-volume-1 ", "/opt/sky-volumes/3": "sky-volume-0 "} {
		if got[path] != want {
			t.Errorf("%s: %q", path, got[path])
		}
	}
	if s := jsonOf(pod["securityContext"]); !strings.Contains(s, `"fsGroup":1000`) || !strings.Contains(s, "OnRootMismatch") {
		t.Error(s)
	}
	if s := jsonOf(pod["volumes"]); strings.Count(s, `"claimName":"data"`) != 1 || !strings.Contains(s, `"hostPath":{"path":"/mnt/disk","type":"DirectoryOrCreate"}`) {
		t.Error(s)
	}
	if s := text(asList(main["command"])[2]); !strings.Contains(s, "skylink 'home data/x' /opt/sky-volumes/3") {
		t.Error(s)
	}
}

// What the user says of a pod counts for more.
func TestTheGroupOfVolumesIsTheUsers(t *testing.T) {
	conf := map[string]any{"pod_config": map[string]any{"spec": map[string]any{"securityContext": map[string]any{"fsGroup": 7}}}}
	s, err := newSettings(conf)
	if err != nil {
		t.Fatal(err)
	}
	w := &podRequest{spec: onVolumes(conf, volumeOf("data")), conf: s}
	if got := jsonOf(asObj(w.describe(0, "x")["spec"])["securityContext"]); !strings.Contains(got, `"fsGroup":7`) {
		t.Error(got)
	}
	w = &podRequest{spec: onVolumes(nil)}
	if got := asObj(w.describe(0, "x")["spec"])["securityContext"]; got != nil {
		t.Errorf("without volumes: %v", got)
	}
}

// The script that puts volumes into the home folder, run by a real shell.
func TestVolumesInTheHomeFolder(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		before     func(home string)
		fails      string
	}{
		{"nothing there", "~/data", func(string) {}, ""},
		{"below a folder that is not there", "~/a/b c/it's", func(string) {}, ""},
		{"an empty folder", "~/data", func(home string) { os.Mkdir(home+"/data", 0o755) }, ""},
		{"a link of before", "~/data", func(home string) { os.Symlink("/nowhere", home+"/data") }, ""},
		{"a folder that is full", "~/data", func(home string) { os.MkdirAll(home+"/data/x", 0o755) }, "the image has something there"},
		{"a file", "~/data", func(home string) { os.WriteFile(home+"/data", nil, 0o600) }, "the image has something there"},
		{"a file in the way", "~/data/x", func(home string) { os.WriteFile(home+"/data", nil, 0o600) }, "may not write there"},
	} {
		home := t.TempDir()
		tt.before(home)
		c := exec.Command("/bin/sh", "-c", strings.ReplaceAll(links([]cloud.VolumeMount{{Path: "/abs"}, {Path: tt.path}}), "/dev/termination-log", home+"/.log")+"echo on")
		c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		out, err := c.Output()
		if tt.fails != "" {
			said, _ := os.ReadFile(home + "/.log")
			if c.ProcessState.ExitCode() != exitLinks || !strings.Contains(string(said), tt.fails) || strings.Contains(string(out), "on") {
				t.Errorf("%s: %v %s %s", tt.name, err, out, said)
			}
			continue
		}
		at, lerr := os.Readlink(filepath.Join(home, strings.TrimPrefix(tt.path, "~/")))
		if err != nil || lerr != nil || at != "/opt/sky-volumes/1" || strings.TrimSpace(string(out)) != "on" {
			t.Errorf("%s: %q %v %v %s", tt.name, at, err, lerr, out)
		}
	}
	if s := links(nil); s != "" {
		t.Errorf("for nothing: %s", s)
	}
	for path, hides := range map[string]bool{"/home/ann": true, "/home": true, "/home/ann/x": false, "/home/an": false, "/data": false} {
		for _, home := range []string{"/home/ann", "/home/ann/", "/"} {
			c := exec.Command("/bin/sh", "-c", strings.ReplaceAll(links([]cloud.VolumeMount{{Path: path}}), "/dev/termination-log", "/dev/null")+"echo on")
			c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			out, _ := c.Output()
			if on := strings.TrimSpace(string(out)) == "on"; on == (hides && home != "/") {
				t.Errorf("%s with the home folder %s: %s", path, home, out)
			}
		}
	}
	p := podOf(t, over("Failed", "", "", fmt.Sprintf(`{"name":"ray-node","state":{"terminated":{"exitCode":%d,"message":"the volume for ~/data cannot be put"}}}`, exitLinks)))
	if j := judge(p, here, 0); !is[*cloud.InvalidError](j.err) || !strings.Contains(j.err.Error(), "~/data") {
		t.Error(j.err)
	}
}

// That a volume is being made, which is said again and again, does not hide why
// that failed; that it is not wanted any more does.
func TestWhatIsSaidOfAClaim(t *testing.T) {
	f := startFake(t)
	p := providerOver(t, f, nil)
	for i, e := range []struct{ kind, reason string }{{"Warning", "ProvisioningFailed"}, {"Normal", "Provisioning"}, {"Normal", "ExternalProvisioning"}, {"Normal", "WaitForFirstConsumer"}} {
		f.put(eventsPath, obj{"kind": "Event", "metadata": obj{"name": fmt.Sprint(i)}, "type": e.kind, "reason": e.reason, "lastTimestamp": time.Unix(int64(1000+i), 0).UTC().Format(time.RFC3339),
			"involvedObject": obj{"kind": "PersistentVolumeClaim", "uid": "u"}})
		w, err := p.at("here", nil)
		if err != nil {
			t.Fatal(err)
		}
		said, err := w.claimEvents(t.Context())
		if want := map[bool]string{true: "WaitForFirstConsumer", false: "ProvisioningFailed"}[i == 3]; err != nil || said["u"] == nil || said["u"].Reason != want {
			t.Errorf("after %s: %v %v", e.reason, said["u"], err)
		}
	}
}

func TestWhenAClaimIsReady(t *testing.T) {
	phase := func(phase string) *claim {
		c := &claim{}
		c.Status.Phase = phase
		return c
	}
	going := phase("Bound")
	going.Metadata.DeletionTimestamp = &going.Metadata.CreationTimestamp
	waiting := &event{Type: "Normal", Reason: "WaitForFirstConsumer"}
	failed := &event{Type: "Warning", Reason: "ProvisioningFailed", Message: "no disks left"}
	busy := &event{Type: "Normal", Reason: "ExternalProvisioning", Message: "waiting for a volume"}
	for _, tt := range []struct {
		name  string
		c     *claim
		waits bool
		said  *event
		age   time.Duration
		ready bool
		why   string
	}{
		{"bound", phase("Bound"), false, failed, time.Hour, true, ""},
		{"for the first pod", phase("Pending"), true, nil, time.Hour, true, ""},
		{"for the first pod, by its event alone", phase("Pending"), false, waiting, time.Hour, true, ""},
		{"made for a pod", phase("Pending"), true, busy, time.Hour, true, ""},
		{"failed for a pod", phase("Pending"), true, failed, 0, false, "no disks left"},
		{"failed", phase("Pending"), false, failed, 0, false, "ProvisioningFailed: no disks left"},
		{"just made", phase("Pending"), false, nil, -time.Second, true, ""},
		{"being made", phase("Pending"), false, busy, time.Minute, true, ""},
		{"being made for too long", phase("Pending"), false, busy, time.Hour, false, "waiting for a volume"},
		{"nothing said", phase("Pending"), false, nil, time.Hour, false, "no volume yet"},
		{"lost", phase("Lost"), false, nil, 0, false, "lost"},
		{"going", going, false, nil, 0, false, "being deleted"},
		{"gone", nil, false, nil, 0, false, "there is none"},
	} {
		if ready, why := readiness(tt.c, tt.waits, tt.said, tt.age); ready != tt.ready || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %v %q", tt.name, ready, why)
		}
	}
}

func TestStorageClassesThatAreMissing(t *testing.T) {
	class := func(name string, annotations map[string]string) storageClass {
		return storageClass{Metadata: metadata{Name: name, Annotations: annotations}}
	}
	slow, fast := class("slow", nil), class("fast", map[string]string{"storageclass.kubernetes.io/is-default-class": "true"})
	for _, tt := range []struct {
		all  []storageClass
		name string
		says string // "": it is there
	}{
		{[]storageClass{slow, fast}, "", ""},
		{[]storageClass{slow, fast}, "slow", ""},
		{[]storageClass{slow, fast}, "nvme", `no storage class "nvme"; there are: fast, slow`},
		{[]storageClass{slow}, "", "no default storage class; name one (config: {storage_class_name: …}): slow"},
		{nil, "", "has no storage class"},
	} {
		if err := missingClass(tt.all, tt.name); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q of %d: %v", tt.name, len(tt.all), err)
		}
	}
}

// Rights are asked for when volumes are used, and what is missing is named.
func TestAnAccountThatMayNotKeepVolumes(t *testing.T) {
	f := startFake(t)
	f.denied = []string{"delete persistentvolumeclaims", "list persistentvolumeclaims"}
	p := providerOver(t, f, nil)
	if _, err := p.Launch(t.Context(), onVolumes(nil)); err != nil || f.reviews > 0 {
		t.Errorf("without volumes: %v, %d questions", err, f.reviews)
	}
	_, err := p.MakeVolume(t.Context(), volumeOf("data"))
	if !is[*cloud.PermissionError](err) || !strings.Contains(err.Error(), "list, delete persistentvolumeclaims in namespace team") {
		t.Error(err)
	}
	if slices.ContainsFunc(f.inventory(), func(s string) bool { return strings.HasSuffix(s, "/data") }) {
		t.Error("it was made nevertheless")
	}
	// To mount a claim takes no rights of one's own.
	f.put(claimsPath, obj{"kind": "PersistentVolumeClaim", "metadata": obj{"name": "theirs"}, "spec": obj{}, "status": obj{"phase": "Bound"}})
	f.hook.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.Contains(r.URL.Path, "persistentvolumeclaims") || strings.Contains(r.URL.Path, "storageclasses") {
			refuseWith(w, 403, "Forbidden", "persistentvolumeclaims is forbidden")
			return true
		}
		return false
	})
	existing := cloud.Volume{Name: "theirs", NameOnCloud: "theirs", Type: cloud.VolumeClaim, Existing: true}
	spec := onVolumes(nil, existing)
	spec.ID.Name = "other"
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Error(err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}

// A launch that waits in vain for a volume says which, and what was said of it;
// nothing stays.
func TestAClaimThatGetsNoVolume(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	f.addClass("broken", false, false, "no disks left in the rack")
	p := providerOver(t, f, nil)
	settings := quick("")
	v := volumeOf("web-scratch")
	v.Class = "broken"
	spec := onVolumes(settings, v)
	v.Cluster = spec.ID
	spec.Volumes[0].Volume = v
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	_, err := p.Launch(t.Context(), spec)
	if !is[*cloud.CapacityError](err) || !strings.Contains(err.Error(), "claim web-scratch: ProvisioningFailed: no disks left in the rack") {
		t.Error(err)
	}
	states, err := p.LookAtVolumes(t.Context(), []cloud.Volume{v})
	if err != nil || !states[0].Exists || states[0].Ready || !strings.Contains(states[0].Reason, "no disks left") {
		t.Errorf("%+v %v", states, err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if left := f.inventory(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A volume that is on a full machine is why there is no room elsewhere.
func TestAVolumeOnAFullMachine(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	p := providerOver(t, f, nil)
	v, err := p.MakeVolume(t.Context(), volumeOf("data"))
	if err != nil {
		t.Fatal(err)
	}
	for !func() bool { s, _ := p.LookAtVolumes(t.Context(), []cloud.Volume{v}); return s[0].Ready }() {
		time.Sleep(time.Millisecond)
	}
	f.more(0)
	_, err = p.Launch(t.Context(), onVolumes(quick(""), v))
	if !is[*cloud.CapacityError](err) || !strings.Contains(err.Error(), "the volume of claim data can be used on machine node-1 only") {
		t.Error(err)
	}
}

func TestPatienceWithVolumes(t *testing.T) {
	for _, tt := range []struct {
		nodes  int
		shared bool
		want   time.Duration
	}{{1, false, 10 * time.Second}, {1, true, 180 * time.Second}, {101, true, 200 * time.Second}, {1001, true, 240 * time.Second}} {
		if got := (settings{}).patience(tt.nodes, tt.shared).nodes; got != tt.want {
			t.Errorf("%d nodes, shared %v: %v", tt.nodes, tt.shared, got)
		}
	}
	f := startFake(t)
	p := providerOver(t, f, nil)
	for _, tt := range []struct {
		mode, phase string
		slow        bool
	}{{cloud.ReadWriteOnce, "Bound", false}, {cloud.ReadWriteOnce, "Pending", true}, {cloud.ReadWriteMany, "Bound", true}} {
		f.put(claimsPath, obj{"kind": "PersistentVolumeClaim", "metadata": obj{"name": "data"}, "spec": obj{}, "status": obj{"phase": tt.phase}})
		w, err := p.at("here", nil)
		if err != nil {
			t.Fatal(err)
		}
		v := volumeOf("data")
		v.AccessMode = tt.mode
		l := &launch{target: w, spec: onVolumes(nil, v)}
		if err := l.readyVolumes(t.Context()); err != nil || l.slowVolumes != tt.slow {
			t.Errorf("%+v: %v %v", tt, l.slowVolumes, err)
		}
	}
}

// The script that empties a folder, run by a real shell.
func TestEmptyingAFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/b/-x", "a/.hidden", ".top", "with space", "-rf"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "kept")
	os.WriteFile(outside, nil, 0o600)
	os.Symlink(filepath.Dir(outside), filepath.Join(dir, "a", "link"))
	for range 2 {
		if out, err := exec.Command("/bin/sh", "-c", strings.ReplaceAll(cleanScript, "/volume", dir)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error("it followed a link")
	}
}

func TestFoldersOfMachines(t *testing.T) {
	f := startFake(t)
	f.addNode("node-2", nil, map[string]string{"cpu": "8", "memory": "32Gi"})
	f.addNode("node-3", map[string]string{"other": "yes"}, map[string]string{"cpu": "8", "memory": "32Gi"})
	settings := map[string]any{"allowed_nodes": map[string]any{"names": []any{"node-1", "node-2"}}}
	p := providerOver(t, f, settings)
	v, err := p.MakeVolume(t.Context(), cloud.Volume{Installation: "i", Name: "disk", NameOnCloud: "disk", Type: cloud.VolumeHostPath, HostPath: "/mnt/disk"})
	if err != nil || v.Place.Region != "here" || v.Namespace != "team" {
		t.Fatalf("%+v %v", v, err)
	}
	states, err := p.LookAtVolumes(t.Context(), []cloud.Volume{v})
	if err != nil || !states[0].Exists || !states[0].Ready {
		t.Errorf("%+v %v", states, err)
	}
	spec := onVolumes(nil, v)
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	err = p.DeleteVolume(t.Context(), v)
	if !is[*cloud.InUseError](err) || !strings.Contains(err.Error(), "web-head") {
		t.Error(err)
	}
	if states, _ := p.LookAtVolumes(t.Context(), []cloud.Volume{v}); len(states[0].Pods) != 1 || len(states[0].Nodes) != 1 {
		t.Errorf("%+v", states)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	// What a deletion that died half way left is no obstacle.
	w, err := p.at("here", settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.make(t.Context(), podsResource, w.describeCleaner(&v, "node-2")); err != nil {
		t.Fatal(err)
	}
	kept := v
	kept.KeepContent = true
	if err := p.DeleteVolume(t.Context(), kept); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	f.cleaned = nil
	f.mu.Unlock()
	if err := p.DeleteVolume(t.Context(), v); err != nil {
		t.Error(err)
	}
	slices.Sort(f.cleaned)
	if got := strings.Join(f.cleaned, ", "); got != "node-1 /mnt/disk, node-2 /mnt/disk" {
		t.Error(got)
	}
	busy := v
	busy.HostPath = "/mnt/busy"
	if err := p.DeleteVolume(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "Resource busy") || !strings.Contains(err.Error(), "machine node-") {
		t.Error(err)
	}
	f.update("/api/v1/nodes", "node-2", func(o obj) { asObj(o["status"])["conditions"] = []any{obj{"type": "Ready", "status": "Unknown"}} })
	if err := p.DeleteVolume(t.Context(), v); !is[*cloud.UnreachableError](err) || !strings.Contains(err.Error(), "node-2") {
		t.Error(err)
	}
	if left := f.inventory(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for path, ok := range map[string]bool{"": false, "/": false, "//": false, "data": false, "/a/../b": false, "/mnt/x": true, "/var": false, "/etc/x": false, "/data": true, "/var/lib/sky": true} {
		v := v
		v.HostPath = path
		if err := p.CheckVolume(v); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Nothing is lost when the process dies between the pods' end and the claim's:
// whatever call was the last, the next one finds what is left, and so does the
// search for what nobody owns.
func TestAnEndThatDiesHalfWay(t *testing.T) {
	t.Parallel()
	for calls := 1; ; calls++ {
		f := startFake(t)
		p := providerOver(t, f, nil)
		spec := onVolumes(nil, volumeOf("web-scratch"))
		spec.Volumes[0].Volume.Cluster = spec.ID
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(t.Context())
		var mu sync.Mutex
		done := 0
		f.hook.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			mu.Lock()
			defer mu.Unlock()
			if done++; done == calls {
				die()
			}
			return false
		})
		err := p.Terminate(ctx, spec.ID)
		mu.Lock()
		through := done < calls
		mu.Unlock()
		die()
		f.hook.set(nil)
		if through {
			if err != nil || calls < 4 {
				t.Errorf("after %d calls: %v", calls, err)
			}
			return
		}
		// Another server, which remembers nothing of it.
		p = providerOver(t, f, nil)
		all := cloud.ClusterID{Installation: "i"}
		nodes, err := p.Nodes(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		left := slices.ContainsFunc(f.inventory(), func(s string) bool { return strings.HasPrefix(s, claimsPath) })
		if left && len(nodes) == 0 {
			t.Errorf("died in call %d: listed %v of %v", calls, nodes, f.inventory())
		}
		for _, n := range nodes {
			if err := p.Terminate(t.Context(), cloud.ClusterID{Installation: "i", Name: n.Cluster, Hash: n.Hash}); err != nil {
				t.Errorf("died in call %d: %v", calls, err)
			}
		}
		if left := slices.DeleteFunc(f.inventory(), func(s string) bool { return strings.HasPrefix(s, podsPath) }); len(left) > 0 {
			t.Errorf("died in call %d: left %v", calls, left)
		}
	}
}
