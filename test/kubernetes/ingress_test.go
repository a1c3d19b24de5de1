//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inNetwork is a command in the network of the cluster, which reaches pods.
func inNetwork(t *testing.T, words ...string) []string {
	t.Helper()
	network, err := os.ReadFile(filepath.Join(place, "network"))
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"nsenter", "--net=/run/netns/" + strings.TrimSpace(string(network))}, words...)
}

// playIngress is an ingress controller for one namespace: nginx, told what the
// namespace's ingresses say as ingress-nginx tells it, with the addresses of
// the pods behind the services.
func playIngress(t *testing.T, namespace string) {
	t.Helper()
	dir := t.TempDir()
	conf, pid := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "pid")
	write := func(locations string) {
		text := fmt.Sprintf("daemon off; user root; worker_processes 1; pid %s; error_log stderr; events {}\nhttp { access_log off; client_body_temp_path %[2]s; proxy_temp_path %[2]s; fastcgi_temp_path %[2]s; uwsgi_temp_path %[2]s; scgi_temp_path %[2]s;\nserver { listen %[3]s:80;\n%[4]s}}\n",
			pid, dir, address, locations)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	words := inNetwork(t, "nginx", "-c", conf, "-p", dir)
	process := daemon(t, filepath.Join(dir, "log"), words[0], words[1:]...)
	eventually(t, "nginx", func() bool { // which a signal would end before it is up
		res, err := client.Get("http://" + address + "/")
		if err != nil {
			return false
		}
		res.Body.Close()
		return true
	})
	ingresses := "/apis/networking.k8s.io/v1/namespaces/" + namespace + "/ingresses"
	behind := func(service string) string {
		list, _, err := ask("GET", "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D"+service, nil)
		at, _ := in(list, "items", 0, "endpoints", 0, "addresses", 0).(string)
		port, _ := in(list, "items", 0, "ports", 0, "port").(float64)
		if err != nil || at == "" {
			return ""
		}
		return fmt.Sprintf("%s:%.0f", at, port)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		said := ""
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			list, _, err := ask("GET", ingresses, nil)
			items, _ := list["items"].([]any)
			if err != nil {
				continue
			}
			var locations strings.Builder
			for _, i := range items {
				path, _ := in(i, "spec", "rules", 0, "http", "paths", 0, "path").(string)
				service, _ := in(i, "spec", "rules", 0, "http", "paths", 0, "backend", "service", "name").(string)
				target, _ := in(i, "metadata", "annotations", "nginx.ingress.kubernetes.io/rewrite-target").(string)
				if in(i, "spec", "ingressClassName") != "nginx" || in(i, "metadata", "annotations", "nginx.ingress.kubernetes.io/use-regex") != "true" {
					continue
				}
				if at := behind(service); at != "" {
					fmt.Fprintf(&locations, "location ~* \"^%[1]s\" { rewrite \"(?i)%[1]s\" %[2]s break; proxy_pass http://%[3]s; }\n", path, target, at)
				}
				if in(i, "status", "loadBalancer", "ingress", 0, "ip") != address {
					ask("PATCH", ingresses+"/"+in(i, "metadata", "name").(string)+"/status", obj{"status": obj{"loadBalancer": obj{"ingress": []any{obj{"ip": address}}}}})
				}
			}
			if locations.String() != said {
				said = locations.String()
				write(said)
				process.Signal(syscall.SIGHUP)
			}
		}
	}()
}

// What a task serves is reached through nginx, at a path of the cluster's, which
// goes with the cluster; or at the pod itself.
func TestPortsThroughAnIngress(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings+"  ports: ingress\n")
	task := func(name string) string {
		return w.task(name+".yaml", "localhost/shell:1", "  ports: [8080, 8081]\nrun: |\n  mkdir -p deep && echo \"served by "+name+"\" >deep/page\n  httpd -p 8081 -h deep\n  exec httpd -f -p 8080\n")
	}
	w.refused([]string{"has no ingress class nginx", "install ingress-nginx", "loadbalancer or podip"}, "launch", "-y", "-c", "none", task("none"))

	made(t, "/apis/networking.k8s.io/v1/ingressclasses", obj{"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": obj{"name": "nginx"}, "spec": obj{"controller": "k8s.io/ingress-nginx"}})
	w.sky(nil, "launch", "-y", "-d", "-c", "web", task("web"))
	w.refused([]string{"cannot be reached yet", "an ingress controller of class nginx gives it"}, "status", "--endpoint", "8080", "web")
	playIngress(t, w.namespace)
	url := func(port string) (at string) {
		eventually(t, "the address of port "+port, func() bool {
			out, code := w.run("status", "--endpoint", port, "web")
			at = regexp.MustCompile(`http://\S+`).FindString(out)
			return code == 0 && at != ""
		})
		return at
	}
	get := func(url string) (text string) {
		eventually(t, "an answer of "+url, func() bool {
			res, err := client.Get(url)
			if err != nil {
				return false
			}
			defer res.Body.Close()
			b, _ := io.ReadAll(res.Body)
			text = strings.TrimSpace(string(b))
			return res.StatusCode == http.StatusOK
		})
		return text
	}
	at := url("8080")
	if want := "http://" + address + "/skypilot/" + w.namespace + "/"; !strings.HasPrefix(at, want) || !strings.HasSuffix(at, "/8080") {
		t.Errorf("%s, want %s…/8080", at, want)
	}
	if got := get(at + "/deep/page"); got != "served by web" {
		t.Errorf("%s/deep/page: %q", at, got)
	}
	if got := get(url("8081") + "/page"); got != "served by web" {
		t.Errorf("the other port: %q", got)
	}
	if n := len(w.names("/apis/networking.k8s.io/v1/namespaces/" + w.namespace + "/ingresses")); n != 2 {
		t.Errorf("%d ingresses", n)
	}
	w.sky(nil, "down", "-y", "web")
	for _, kind := range []string{"services", "/apis/networking.k8s.io/v1/namespaces/" + w.namespace + "/ingresses"} {
		if left := w.names(kind); len(left) > 0 {
			t.Errorf("after the cluster: %v", left)
		}
	}

	w.sky(nil, "launch", "-y", "-d", "-c", "bare", "--config", "kubernetes.ports=podip", task("bare"))
	if left := w.names("services"); len(left) > 0 {
		t.Errorf("a pod's address needs no %v", left)
	}
	out := w.sky(nil, "status", "--endpoint", "8080", "bare")
	ip, _ := in(mustAsk(t, "GET", w.path("pods"), nil), "items", 0, "status", "podIP").(string)
	if ip == "" || !strings.Contains(out, ip+":8080") {
		t.Fatalf("the pod is at %s, and the endpoint is %s", ip, out)
	}
	eventually(t, "an answer of the pod", func() bool {
		c := inNetwork(t, "curl", "-sS", "--max-time", "10", "http://"+ip+":8080/deep/page")
		out, err := exec.Command(c[0], c[1:]...).Output()
		return err == nil && strings.TrimSpace(string(out)) == "served by bare"
	})
}
