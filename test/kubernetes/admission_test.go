//go:build kubernetes && linux

package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority is a CA that nobody knows, and a certificate of it for the address.
func authority(t *testing.T, ip net.IP) (ca []byte, server tls.Certificate) {
	t.Helper()
	sign := func(of, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
		of.NotBefore, of.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, byKey)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	keys := [2]*ecdsa.PrivateKey{}
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootDER := sign(root, root, keys[0], keys[0])
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "webhook"}, IPAddresses: []net.IP{ip},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}),
		tls.Certificate{Certificate: [][]byte{sign(leaf, root, keys[1], keys[0])}, PrivateKey: keys[1]}
}

// What an admission webhook does with pods.
const (
	allows = iota
	denies
	hangs
)

// webhook is a server that the API server asks before it makes pods in the user's
// namespace. It counts how often.
type webhook struct {
	does  atomic.Int32
	asked atomic.Int32
}

func startWebhook(t *testing.T, w *workstation, name string) *webhook {
	t.Helper()
	h := &webhook{}
	end := make(chan struct{})
	l, err := net.Listen("tcp", beside(t))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		var review obj
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		if h.does.Load() == hangs {
			select {
			case <-r.Context().Done():
			case <-end:
			}
			return
		}
		answer := obj{"uid": in(review, "request", "uid"), "allowed": h.does.Load() == allows, "status": obj{"message": "images must be signed"}}
		json.NewEncoder(rw).Encode(obj{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
	}))
	s.Listener.Close()
	s.Listener = l
	ca, cert := authority(t, l.Addr().(*net.TCPAddr).IP)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	made(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", obj{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": obj{"name": w.namespace}, "webhooks": []any{obj{"name": name, "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "timeoutSeconds": 2, "failurePolicy": "Fail",
			"clientConfig":      obj{"url": s.URL + "/", "caBundle": ca},
			"rules":             []any{obj{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"}}},
			"namespaceSelector": obj{"matchLabels": obj{"kubernetes.io/metadata.name": w.namespace}}}}})
	probe := obj{"apiVersion": "v1", "kind": "Pod", "metadata": obj{"name": "probe"}, "spec": obj{"containers": []any{obj{"name": "c", "image": "localhost/shell:1"}}}}
	eventually(t, "the webhook to be asked", func() bool {
		if _, _, err := ask("POST", w.path("pods")+"?dryRun=All", probe); err != nil {
			t.Fatal(err)
		}
		return h.asked.Load() > 0
	})
	return h
}

// A webhook that denies ends a launch at once, with its words and what to do; one
// that does not answer after some tries, with its name.
func TestAdmissionWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	h := startWebhook(t, w, "signed.sky.test")
	task := w.task("task.yaml", "localhost/shell:1", "run: echo here\n")
	launch := func(does int32, want ...string) int32 {
		t.Helper()
		h.does.Store(does)
		before := h.asked.Load()
		w.refused(want, "launch", "-y", "-c", "hooked", task)
		if left := w.names("pods"); len(left) > 0 {
			t.Errorf("pods are left: %v", left)
		}
		return h.asked.Load() - before
	}
	if n := launch(denies, `admission webhook "signed.sky.test" denied the request: images must be signed`, "kubernetes.pod_config"); n != 1 {
		t.Errorf("a webhook that denies was asked %d times", n)
	}
	if n := launch(hangs, "the admission webhook signed.sky.test gives no answer", "whoever runs the cluster must mend or remove it"); n < 1 || n > 10 {
		t.Errorf("a webhook that does not answer was asked %d times", n)
	}
	h.does.Store(allows)
	w.sky([]string{"here", "SUCCEEDED"}, "launch", "-y", "-c", "hooked", task)
}

// A budget keeps whoever drains machines from taking the pod away, and does not
// keep the user from giving it back.
func TestADisruptionBudget(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.sky([]string{"here"}, "launch", "-y", "-c", "kept", w.task("task.yaml", "localhost/shell:1", "run: echo here\n"))
	budgets := "/apis/policy/v1/namespaces/" + w.namespace + "/poddisruptionbudgets"
	mustAsk(t, "POST", budgets, obj{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": obj{"name": "kept"},
		"spec": obj{"minAvailable": 1, "selector": obj{"matchLabels": obj{"parent": "skypilot"}}}})
	eventually(t, "the budget to hold", func() bool {
		healthy, _ := in(mustAsk(t, "GET", budgets+"/kept", nil), "status", "currentHealthy").(float64)
		return healthy == 1
	})
	pod := w.names("pods")[0]
	out, code, err := ask("POST", w.path("pods/"+pod+"/eviction"), obj{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": obj{"name": pod}})
	if err != nil || code != http.StatusTooManyRequests || !strings.Contains(out["message"].(string), "disruption budget") {
		t.Errorf("draining: %d %v %v", code, out["message"], err)
	}
	w.sky([]string{"UP"}, "status", "-r", "kept")
	w.sky([]string{"still here"}, "exec", "kept", "--", "echo still here")
	w.sky(nil, "down", "-y", "kept")
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
}
