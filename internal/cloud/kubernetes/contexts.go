package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/skypilot-go/sky/internal/config"
)

// Contexts are the clusters that can be reached: those of the kubeconfig, and
// the one this process runs in. Clients are made on first use and kept while
// the files stay as they are.
type Contexts struct {
	home string

	mu      sync.Mutex
	read    string // what the files looked like when they were read
	file    *clientapi.Config
	readErr error
	clients map[string]*client
}

// NewContexts returns the contexts of $KUBECONFIG or home's ~/.kube/config. It
// does no I/O.
func NewContexts(home string) *Contexts {
	quiet()
	return &Contexts{home: home}
}

// quiet keeps the library from writing to stderr what we end on purpose, such as
// connections: all that matters comes back as an error.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// client talks to one cluster.
type client struct {
	context   string
	namespace string // of the context; never ""
	rest      *rest.Config
	raw       rest.Interface // for lists
	busy      *busy
	clock     *clock
	dynamic.Interface
}

// clientsOf makes the clients of a cluster, over the same connections.
func clientsOf(conf *rest.Config) (dynamic.Interface, rest.Interface, error) {
	own := dynamic.ConfigFor(conf)
	h, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, nil, err
	}
	dyn, err := dynamic.NewForConfigAndClient(own, h)
	if err != nil {
		return nil, nil, err
	}
	own.GroupVersion = &schema.GroupVersion{}
	raw, err := rest.UnversionedRESTClientForConfigAndClient(own, h)
	return dyn, raw, err
}

// The kinds of objects that are asked for.
var (
	podsResource           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesResource          = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	servicesResource       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	secretsResource        = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	eventsResource         = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	claimsResource         = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	volumesResource        = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	classesResource        = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	ingressesResource      = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	ingressClassesResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses"}
	reviewsResource        = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	runtimesResource       = schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}
)

const (
	envInClusterName = "SKYPILOT_IN_CLUSTER_CONTEXT_NAME"
	inClusterHost    = "KUBERNETES_SERVICE_HOST"
)

func inClusterName() string {
	if name := os.Getenv(envInClusterName); name != "" {
		return name
	}
	return "in-cluster"
}

// OwnContext is the context of the cluster that this process runs in; "": it runs in
// none.
func OwnContext() string {
	if !inCluster() {
		return ""
	}
	return inClusterName()
}

func inCluster() bool { return os.Getenv(inClusterHost) != "" }

// files are the kubeconfig's, in the order in which they win.
func (c *Contexts) files() []string {
	if list := filepath.SplitList(os.Getenv("KUBECONFIG")); len(list) > 0 {
		return slices.DeleteFunc(list, func(f string) bool { return f == "" })
	}
	return []string{filepath.Join(c.home, ".kube", "config")}
}

// kubeconfig reads the files when they have changed. None at all is an empty
// configuration.
func (c *Contexts) kubeconfig() (*clientapi.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kubeconfigLocked()
}

func (c *Contexts) kubeconfigLocked() (*clientapi.Config, error) {
	files := c.files()
	var stamp strings.Builder
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			fmt.Fprintf(&stamp, "%s %d %d\n", f, st.Size(), st.ModTime().UnixNano())
		}
	}
	if c.file != nil && stamp.String() == c.read {
		return c.file, c.readErr
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, WarnIfAllMissing: false, Warner: func(error) {}}
	file, err := rules.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.readErr = fmt.Errorf("reading %s: %w", strings.Join(files, ", "), err)
		file = clientapi.NewConfig()
	} else {
		c.readErr = nil
	}
	c.read, c.file, c.clients = stamp.String(), file, nil
	return c.file, c.readErr
}

// A contextError says that there is no such context.
type contextError struct {
	name  string
	known []string
}

func (e *contextError) Error() string {
	if len(e.known) == 0 {
		return fmt.Sprintf("there is no Kubernetes context %q, and no other either", e.name)
	}
	return fmt.Sprintf("there is no Kubernetes context %q; there are: %s", e.name, strings.Join(e.known, ", "))
}

// client returns the client of a context; "" is the current one.
func (c *Contexts) client(context string) (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := c.kubeconfigLocked()
	if err != nil {
		return nil, err
	}
	if context == "" {
		context = file.CurrentContext
	}
	if k := c.clients[context]; k != nil {
		return k, nil
	}
	var conf *rest.Config
	namespace := "default"
	entry, known := file.Contexts[context]
	switch {
	case known:
		if entry.Namespace != "" {
			namespace = entry.Namespace
		}
		conf, err = clientcmd.NewNonInteractiveClientConfig(*file, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	case inCluster() && (context == inClusterName() || context == ""):
		context = inClusterName()
		if b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
			namespace = strings.TrimSpace(string(b))
		}
		conf, err = rest.InClusterConfig()
	default:
		return nil, &contextError{context, namesOf(file)}
	}
	if err != nil {
		return nil, fmt.Errorf("context %q cannot be used: %w", context, err)
	}
	// The API server has limits of its own, which are told apart and kept to.
	conf.QPS, conf.Burst = -1, -1
	conf.UserAgent = "sky"
	conf.WarningHandler = rest.NoWarnings{}
	busy, clock := &busy{}, &clock{}
	conf.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retryAfterTransport{next, busy, clock} })
	dyn, raw, err := clientsOf(conf)
	if err != nil {
		return nil, fmt.Errorf("context %q cannot be used: %w", context, err)
	}
	if c.clients == nil {
		c.clients = map[string]*client{}
	}
	k := &client{context: context, namespace: namespace, rest: conf, raw: raw, busy: busy, clock: clock, Interface: dyn}
	c.clients[context] = k
	return k, nil
}

func namesOf(file *clientapi.Config) []string {
	var names []string
	for name := range file.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Names lists every context that there is, the current one first, the cluster
// this process runs in last. Pools of machines of one's own are left out.
func (c *Contexts) Names() ([]string, error) {
	file, err := c.kubeconfig()
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(namesOf(file), isPool)
	if i := slices.Index(names, file.CurrentContext); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, file.CurrentContext)
	}
	if includesInCluster() && !slices.Contains(names, inClusterName()) {
		names = append(names, inClusterName())
	}
	return names, nil
}

func includesInCluster() bool { return inCluster() && config.AllIncludesInCluster.On(os.LookupEnv) }

// isPool tells contexts of pools of the user's own machines.
func isPool(context string) bool { return strings.HasPrefix(context, "ssh-") }

// usable lists the contexts that the settings allow.
func (c *Contexts) usable(allowed any) ([]string, error) {
	all, err := c.Names()
	if err != nil {
		return nil, err
	}
	switch v := allowed.(type) {
	case string:
		if v == "all" {
			return all, nil
		}
		return []string{v}, nil
	case []any:
		var names []string
		for _, name := range v {
			if s, ok := name.(string); ok && !isPool(s) && !slices.Contains(names, s) {
				names = append(names, s)
			}
		}
		return names, nil
	}
	if config.AllowAllContexts.On(os.LookupEnv) {
		return all, nil
	}
	file, err := c.kubeconfig()
	if err != nil {
		return nil, err
	}
	if current := file.CurrentContext; current != "" && !isPool(current) {
		return []string{current}, nil
	}
	if inCluster() {
		return []string{inClusterName()}, nil
	}
	return nil, nil
}

// owner is whose credentials a context uses: <cluster>_<user>.
func (c *Contexts) owner(context string) string {
	file, err := c.kubeconfig()
	if err == nil {
		if entry, ok := file.Contexts[context]; ok {
			return entry.Cluster + "_" + entry.AuthInfo
		}
	}
	return context
}
