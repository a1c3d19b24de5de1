//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limited is a user of their own, whose calls the API server can be told to
// refuse.
func limited(t *testing.T, w *workstation) (refuse func(on bool)) {
	t.Helper()
	mustAsk(t, "POST", w.path("serviceaccounts"), obj{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": obj{"name": "limited"}})
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	mustAsk(t, "POST", bindings, obj{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": obj{"name": w.namespace},
		"roleRef":  obj{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{obj{"kind": "ServiceAccount", "name": "limited", "namespace": w.namespace}}})
	w.after = func() { ask("DELETE", bindings+"/"+w.namespace, nil) }
	token := in(mustAsk(t, "POST", w.path("serviceaccounts/limited/token"), obj{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": obj{"expirationSeconds": 3600}}), "status", "token").(string)
	path := w.write("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: real
clusters: [{name: test, cluster: {server: "https://%s:6443", insecure-skip-tls-verify: true}}]
users: [{name: limited, user: {token: %s}}]
contexts: [{name: real, context: {cluster: test, user: limited}}]
`, address, token))
	w.env = append(w.env, "KUBECONFIG="+path)

	const flow = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	made(t, flow+"prioritylevelconfigurations", obj{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": obj{"name": w.namespace},
		"spec": obj{"type": "Limited", "limited": obj{"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": obj{"type": "Reject"}}}})
	schema := flow + "flowschemas/" + w.namespace
	made(t, flow+"flowschemas", obj{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": obj{"name": w.namespace}, "spec": obj{
		"matchingPrecedence": 500, "priorityLevelConfiguration": obj{"name": "exempt"},
		"rules": []any{obj{"subjects": []any{obj{"kind": "ServiceAccount", "serviceAccount": obj{"name": "limited", "namespace": w.namespace}}},
			"resourceRules":    []any{obj{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}, "clusterScope": true, "namespaces": []any{"*"}}},
			"nonResourceRules": []any{obj{"nonResourceURLs": []any{"*"}, "verbs": []any{"*"}}}}}}})
	// One call at a time has room there. It is held by one that waits for a webhook
	// that never answers.
	l, err := net.Listen("tcp", beside(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	made(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", obj{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": obj{"name": w.namespace},
		"webhooks": []any{obj{"name": "never.sky.test", "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "timeoutSeconds": 30, "clientConfig": obj{"url": "https://" + l.Addr().String() + "/"},
			"rules":             []any{obj{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"}}},
			"namespaceSelector": obj{"matchLabels": obj{"kubernetes.io/metadata.name": w.namespace}}}}})
	call := func(method, path, body string) int {
		req, _ := http.NewRequest(method, "https://"+net.JoinHostPort(address, "6443")+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return 0
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res.StatusCode
	}
	stop := func() {}
	t.Cleanup(func() { stop() })
	return func(on bool) {
		t.Helper()
		stop()
		level := "exempt"
		if on {
			level = w.namespace
			ended := make(chan struct{})
			stop = func() { close(ended); stop = func() {} }
			go func() {
				for {
					select {
					case <-ended:
						return
					case <-time.After(20 * time.Millisecond):
						call("POST", w.path("configmaps"), `{"metadata":{"generateName":"held-"}}`)
					}
				}
			}()
		}
		mustAsk(t, "PATCH", schema, obj{"spec": obj{"priorityLevelConfiguration": obj{"name": level}}})
		eventually(t, "the API server to change its mind", func() bool {
			return (call("GET", "/api/v1/nodes?limit=1", "") == http.StatusTooManyRequests) == on
		})
	}
}

// refusals counts what the API server refused to a flow.
func refusals(t *testing.T, flow string) (n int) {
	t.Helper()
	req, _ := http.NewRequest("GET", "https://"+net.JoinHostPort(address, "6443")+"/metrics", nil)
	req.Header.Set("Authorization", "Bearer admintoken")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`apiserver_flowcontrol_rejected_requests_total\{flow_schema="`+flow+`"[^}]*\} (\S+)`).FindAllStringSubmatch(string(text), -1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		n += int(v)
	}
	return n
}

// An API server that has too much to do refuses calls for a while. Nothing is
// concluded from that, what was begun goes on afterwards, and nobody makes it worse.
func TestAnAPIServerThatHasTooMuchToDo(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	refuse := limited(t, w)
	w.sky([]string{"here"}, "launch", "-y", "-c", "first", w.task("first.yaml", "localhost/shell:1", "run: echo here\n"))

	refuse(true)
	before, since := refusals(t, w.namespace), time.Now()
	type outcome struct {
		out  string
		code int
	}
	behind := func(args ...string) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			out, code := w.run(args...)
			done <- outcome{out, code}
		}()
		return done
	}
	launched := behind("launch", "-y", "-c", "second", w.task("second.yaml", "localhost/shell:1", "run: echo at last\n"))
	seen := behind("status", "-r", "first")
	select {
	case o := <-launched:
		t.Fatalf("the launch did not wait: exit %d\n%s", o.code, o.out)
	case <-time.After(7 * time.Second):
	}
	n, took := refusals(t, w.namespace)-before, time.Since(since)
	refuse(false)
	if n == 0 || float64(n) > 20*took.Seconds() {
		t.Errorf("%d calls were refused in %v", n, took)
	}
	if o := <-launched; o.code != 0 || !strings.Contains(o.out, "at last") {
		t.Errorf("the launch: exit %d\n%s", o.code, o.out)
	}
	if o := <-seen; o.code != 0 || !strings.Contains(o.out, "UP") {
		t.Errorf("the status: exit %d\n%s", o.code, o.out)
	}

	refuse(true)
	w.sky([]string{"Kubernetes: disabled", "asks to slow down"}, "check", "kubernetes")
	refuse(false)
	w.sky([]string{"UP"}, "status", "-r", "first")
	w.sky([]string{"once more"}, "exec", "first", "--", "echo once more")
	if n := len(w.names("pods")); n != 2 {
		t.Errorf("%d pods", n)
	}
}
