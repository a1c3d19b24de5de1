package auth

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Options say which logins are on. The zero value is a server without any.
type Options struct {
	DefaultRole     func() string // of users seen for the first time; nil or "": admin
	ServiceAccounts bool          // tokens are looked at
	Basic           bool          // passwords
	Initial         string        // NAME:HASH of the first administrator
	Proxy           Proxy
	OAuth2          *url.URL // of the OAuth2 proxy; nil: none
	Owner           Owner
}

// Demanded reports whether people have to log in: some login is on, and somebody
// switched it on.
func (o Options) Demanded() bool {
	return o.Basic || o.OAuth2 != nil || o.Proxy.Enabled && o.Proxy.Explicit
}

func (o Options) defaultRole() string {
	if o.DefaultRole != nil {
		if role := o.DefaultRole(); role != "" {
			return role
		}
	}
	return "admin"
}

// Proxy says how a proxy in front of the server says who logged in there.
type Proxy struct {
	Enabled  bool
	Explicit bool   // somebody switched it on: then a login is demanded
	Header   string // that carries the identity
	JWT      bool   // the header holds a JWT, whose signature the proxy has checked
	Claim    string // of the JWT
	// Trusted are addresses that the header is believed from.
	Trusted []netip.Prefix
	// Users are the accounts, besides root and the server's own, whose processes are
	// believed at an address of this machine.
	Users []int
}

// envProxyUsers names [Proxy.Users], with commas between names or numbers.
const envProxyUsers = "SKY_TRUSTED_PROXY_USERS"

func (p Proxy) trusts(peer netip.Addr) bool {
	for _, t := range p.Trusted {
		if t.Contains(peer) {
			return true
		}
	}
	return false
}

// serverFile is the part of ~/.sky/.server.yaml that is about logins.
func serverFile() *schema.Spec {
	proxy := schema.Section("",
		schema.New("enabled", &schema.Spec{Kinds: schema.BoolKind | schema.NullKind}),
		schema.New("header_name", schema.Written("")),
		schema.New("header_format", schema.Written("")),
		schema.New("jwt_identity_claim", schema.Written("")),
		schema.New("trusted_proxies", schema.List("", schema.Written("")).Or(schema.NullKind)))
	auth := schema.Section("", schema.New("external_proxy", proxy.Opened().Or(schema.NullKind)))
	return schema.Section("", schema.New("auth", auth.Opened().Or(schema.NullKind))).Opened()
}

// Load reads the options from the environment and from ~/.sky/.server.yaml. A
// setting that cannot be understood is an error: a server must not start with
// fewer locks than were meant.
func Load(home string, getenv func(string) string) (Options, error) {
	o := Options{Initial: getenv("SKYPILOT_INITIAL_BASIC_AUTH")}
	var errs []error
	on := func(name string) bool {
		v := strings.TrimSpace(getenv(name))
		if v == "" {
			return false
		}
		b, err := strconv.ParseBool(strings.ToLower(v))
		if err != nil {
			errs = append(errs, fmt.Errorf("the variable %s is %q, not true or false", name, v))
		}
		return b
	}
	o.ServiceAccounts = on("ENABLE_SERVICE_ACCOUNTS")
	o.Basic = on("ENABLE_BASIC_AUTH") && !on("SKYPILOT_DISABLE_BASIC_AUTH_MIDDLEWARE")
	if on("SKYPILOT_AUTH_OAUTH2_PROXY_ENABLED") {
		base := getenv("SKYPILOT_AUTH_OAUTH2_PROXY_BASE_URL")
		u, err := url.Parse(strings.TrimRight(base, "/"))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, errors.New("SKYPILOT_AUTH_OAUTH2_PROXY_BASE_URL must be the URL of the OAuth2 proxy, such as http://127.0.0.1:4180"))
		}
		o.OAuth2 = u
	}
	o.Owner.OpenLoopback = on(EnvOpenLoopback)
	errs = append(errs, o.loadProxy(filepath.Join(home, ".sky", ".server.yaml"), getenv))
	return o, errors.Join(errs...)
}

func (o *Options) loadProxy(file string, getenv func(string) string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the logins' settings: %w", err)
	}
	n, err := (&yaml11.Source{Name: file, Text: string(text)}).ReadOne()
	if err == nil && n != nil {
		err = serverFile().Validate(n)
	}
	if err != nil {
		return err
	}
	x := n.Find("auth", "external_proxy")
	o.Proxy = Proxy{Enabled: !o.Basic && o.OAuth2 == nil, Header: "X-Auth-Request-Email", Claim: "sub"}
	if on := x.Get("enabled"); on != nil {
		o.Proxy.Enabled, o.Proxy.Explicit = on.IsTrue(), on.IsTrue()
	}
	for _, name := range []string{x.TextAt("header_name"), getenv("SKYPILOT_AUTH_USER_HEADER")} {
		if name != "" {
			o.Proxy.Header = name
		}
	}
	o.Proxy.Claim = cmp.Or(x.TextAt("jwt_identity_claim"), o.Proxy.Claim)
	switch format := x.TextAt("header_format"); format {
	case "", "plaintext":
	case "jwt":
		o.Proxy.JWT = true
	default:
		return fmt.Errorf("%s: auth.external_proxy.header_format is %q; it can be plaintext or jwt", file, format)
	}
	trusted := []string{"127.0.0.0/8", "::1"} // a proxy on this machine
	if list := getenv("SKY_TRUSTED_PROXIES"); list != "" {
		trusted = strings.Split(list, ",")
	} else if x.Get("trusted_proxies") != nil {
		trusted = nil
		for _, p := range x.List("trusted_proxies") {
			trusted = append(trusted, p.TextAt())
		}
	}
	if o.Proxy.Trusted, err = prefixes(trusted); err != nil {
		return err
	}
	o.Proxy.Users, err = accounts(getenv(envProxyUsers))
	return err
}

// accounts reads names or numbers of this machine's accounts.
func accounts(list string) (out []int, err error) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		text := name
		if u, err := user.Lookup(name); err == nil {
			text = u.Uid
		}
		uid, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("the variable %s names %q, which is no account of this machine", envProxyUsers, name)
		}
		out = append(out, int(uid))
	}
	return out, nil
}

// prefixes reads addresses and networks.
func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		s = strings.TrimSpace(s)
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return nil, fmt.Errorf("%q is no address or network of a trusted proxy; write 10.0.0.7 or 10.0.0.0/24", s)
			}
			p = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
