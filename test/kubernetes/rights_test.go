//go:build kubernetes && linux

package kubernetes

import (
	"os"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// The rights that the documentation asks for are enough, and without those for
// volumes the launch says which are missing.
func TestTheRightsThatTheDocumentationAsksFor(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.storage()
	doc, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```\n# Everything above")
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "```")
	first, second, ok := strings.Cut(text, "---\n")
	var role, clusterRole obj
	for from, to := range map[string]*obj{first: &role, second: &clusterRole} {
		n, err := (&yaml11.Source{Text: from}).ReadOne()
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		*to, _ = n.Any().(map[string]any)
	}
	const group = "/apis/rbac.authorization.k8s.io/v1/"
	mustAsk(t, "POST", w.path("serviceaccounts"), obj{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": obj{"name": "sky"}})
	subjects := []any{obj{"kind": "ServiceAccount", "name": "sky", "namespace": w.namespace}}
	bound := func(kind, name string) obj {
		return obj{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind + "Binding", "metadata": obj{"name": name}, "subjects": subjects,
			"roleRef": obj{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}}
	}
	role["metadata"] = obj{"name": "sky"}
	clusterRole["metadata"] = obj{"name": w.namespace}
	volumes := in(role, "rules", 3)
	if s := in(volumes, "resources", 0); s != "persistentvolumeclaims" {
		t.Fatalf("the rule for volumes is elsewhere: %v", s)
	}
	made(t, group+"clusterroles", clusterRole)
	made(t, group+"clusterrolebindings", bound("ClusterRole", w.namespace))
	verbs := in(volumes, "verbs")
	volumes.(obj)["verbs"] = []any{"get", "list"}
	mustAsk(t, "POST", group+"namespaces/"+w.namespace+"/roles", role)
	mustAsk(t, "POST", group+"namespaces/"+w.namespace+"/rolebindings", bound("Role", "sky"))
	token := in(mustAsk(t, "POST", w.path("serviceaccounts/sky/token"), obj{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": obj{"expirationSeconds": 3600}}), "status", "token").(string)
	admin, err := os.ReadFile(kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "KUBECONFIG="+w.write("kubeconfig", strings.ReplaceAll(string(admin), "admintoken", token)))

	task := w.task("task.yaml", "localhost/shell:1", "  ports: 8080\nvolumes: {/scratch: {size: 1}}\nrun: echo fine > /scratch/x && cat /scratch/x\n")
	w.sky([]string{"Kubernetes: enabled"}, "check", "kubernetes")
	w.refused([]string{"create, delete persistentvolumeclaims in namespace " + w.namespace}, "launch", "-y", "-c", "some", task)
	volumes.(obj)["verbs"] = verbs
	mustAsk(t, "PATCH", group+"namespaces/"+w.namespace+"/roles/sky", obj{"rules": role["rules"]})
	w.sky([]string{"fine", "SUCCEEDED"}, "launch", "-y", "-c", "all", task)
	w.sky(nil, "down", "-y", "all")
	w.sky([]string{"✓"}, "volumes", "apply", "-y", w.volume("data", "type: k8s-pvc\nsize: 1\n"))
	w.sky([]string{"data"}, "volumes", "ls", "-r")
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "data")
}
