package nebiusfake

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Token is a user's IAM token, which does not end.
const Token = "ne1fakeiamtoken0123456789"

// ServiceAccount has the key PublicKey.
const ServiceAccount, PublicKey = "serviceaccount-e00fake", "publickey-e00fake"

var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// Credentials is the file credentials.json of the service account.
func Credentials() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key())
	if err != nil {
		panic(err)
	}
	text, _ := json.Marshal(dict{"subject-credentials": dict{
		"type": "JWT", "alg": "RS256", "kid": PublicKey, "iss": ServiceAccount, "sub": ServiceAccount, "private-key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	}})
	return text
}

func (f *Fake) login(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/Exchange") || r.URL.Path == "/oauth2/token/exchange" || fakehttp.Bearer(Token)(r) || f.tokens.Good(r)
}

// hosts are the names of services, before .api. and the domain (README.md, "API Endpoints").
var hosts = map[string]string{
	"nebius.iam.v1.TokenExchangeService": "tokens.iam", "nebius.iam": "cpl.iam", "nebius.compute": "compute", "nebius.vpc": "vpc", "nebius.capacity": "capacity-advisor.billing-cpl", "nebius.billing": "api.calculator.billing-data-plane",
}

// misdirected refuses what one of Nebius' hosts is asked that is another one's.
func misdirected(r *http.Request) *fakehttp.Reply {
	service := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")[0]
	parts := strings.Split(service, ".")
	host, ok := hosts[service]
	if !ok && len(parts) > 1 {
		host, ok = hosts[parts[0]+"."+parts[1]]
	}
	if name, _, _ := strings.Cut(fakehttp.Host(r), ":"); !ok || !strings.HasSuffix(name, ".nebius.cloud") || strings.HasPrefix(name, host+".api.") {
		return nil
	}
	return &fakehttp.Reply{Status: http.StatusNotFound, Body: dict{"code": 12, "message": "unknown service " + service}}
}

// account answers about the account: tokens, projects, prices and what is to be had.
func (f *Fake) account() {
	exchange := func(jwtText, grant, subject string) (any, error) {
		claims := &jwt.RegisteredClaims{}
		_, err := jwt.ParseWithClaims(jwtText, claims, func(t *jwt.Token) (any, error) {
			if t.Header["kid"] != PublicKey {
				return nil, fmt.Errorf("no such key")
			}
			return &key().PublicKey, nil
		}, jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(ServiceAccount), jwt.WithSubject(ServiceAccount), jwt.WithExpirationRequired())
		if err != nil || grant != "urn:ietf:params:oauth:grant-type:token-exchange" || subject != "urn:ietf:params:oauth:token-type:jwt" {
			return nil, fluffyapi.Errorf(fluffyapi.Unauthorized, "the token cannot be exchanged: %v", err)
		}
		const life = 12 * time.Hour
		token := f.tokens.MintFor(life, ServiceAccount, func(int) string { return "ne1" + f.NewID() })
		return fakehttp.TokenReply(token, int(life.Seconds()), dict{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}), nil
	}
	// nebius/iam/v1/token_exchange_service.proto, and README.md for the form of HTTP
	f.call("nebius.iam.v1.TokenExchangeService/Exchange", "token", fakehttp.Schema{"!subject_token": word}, func(_ *http.Request, in dict) (any, error) {
		return exchange(str(in["subject_token"]), str(in["grant_type"]), str(in["subject_token_type"]))
	})
	f.Route("POST", "/oauth2/token/exchange", "token", nil, func(r *http.Request, _ dict) (any, error) {
		return exchange(r.FormValue("subject_token"), r.FormValue("grant_type"), r.FormValue("subject_token_type"))
	})
	// nebius/iam/v1/project_service.proto
	project := func(region string) dict {
		return dict{"metadata": dict{"id": Projects[region], "parent_id": Tenant, "name": "default-" + region}, "spec": dict{"region": region}, "status": dict{"region": region}}
	}
	find := func(_ *http.Request, in dict) (any, error) {
		for region, id := range Projects {
			if in["id"] == id || in["parent_id"] == Tenant && in["name"] == "default-"+region {
				return project(region), nil
			}
		}
		return nil, fakehttp.Missing(in["id"])
	}
	f.call("nebius.iam.v1.ProjectService/Get", "projects.get", fakehttp.Schema{"!id": word}, find)
	f.call("nebius.iam.v1.ProjectService/GetByName", "projects.get", byName, find)
	f.call("nebius.iam.v1.ProjectService/List", "projects.list", fakehttp.Schema{"!parent_id": word}, func(_ *http.Request, in dict) (any, error) {
		all := []dict{}
		for _, region := range slices.Sorted(maps.Keys(Projects)) {
			all = append(all, project(region))
		}
		if in["parent_id"] != Tenant {
			return nil, fluffyapi.Errorf(fluffyapi.Forbidden, "no access to %v", in["parent_id"])
		}
		return page(in, "items", all, 10)
	})
	// nebius/compute/v1/platform_service.proto, image_service.proto
	platform := func(name, project string) dict {
		all := []dict{}
		for _, key := range slices.Sorted(maps.Keys(presets)) {
			if p := presets[key]; p.platform == name {
				all = append(all, dict{"name": p.name, "allow_gpu_clustering": p.gpu == 8, "resources": dict{"vcpu_count": p.cpus, "memory_gibibytes": p.memory, "gpu_count": p.gpu}})
			}
		}
		return dict{"metadata": dict{"id": "computeplatform-" + name, "name": name, "parent_id": project}, "spec": dict{"presets": all}}
	}
	f.call("nebius.compute.v1.PlatformService/List", "offers", fakehttp.Schema{"!parent_id": word}, func(_ *http.Request, in dict) (any, error) {
		all := []dict{}
		for _, name := range []string{"cpu-e2", "gpu-h100-sxm", "gpu-l40s-a"} {
			all = append(all, platform(name, str(in["parent_id"])))
		}
		return page(in, "items", all, 100)
	})
	f.call("nebius.compute.v1.PlatformService/GetByName", "offers", byName, func(_ *http.Request, in dict) (any, error) {
		if p := platform(str(in["name"]), str(in["parent_id"])); len(p["spec"].(dict)["presets"].([]dict)) > 0 {
			return p, nil
		}
		return nil, fakehttp.Missing(in["name"])
	})
	image := func(_ *http.Request, in dict) (any, error) {
		for n, family := range families {
			if id := fmt.Sprintf("computeimage-e00fake%d", n); in["id"] == id || in["image_family"] == family {
				return dict{"metadata": dict{"id": id, "name": family}, "spec": dict{"image_family": family}, "status": dict{"state": "READY", "min_disk_size_bytes": strconv.Itoa(10 << 30)}}, nil
			}
		}
		return nil, fakehttp.Missing("the image")
	}
	f.call("nebius.compute.v1.ImageService/Get", "images", fakehttp.Schema{"!id": word}, image)
	f.call("nebius.compute.v1.ImageService/GetLatestByFamily", "images", fakehttp.Schema{"!image_family": word}, image)
	// nebius/capacity/v1/resource_advice_service.proto
	f.call("nebius.capacity.v1.ResourceAdviceService/List", "offers", fakehttp.Schema{"!parent_id": word}, func(r *http.Request, in dict) (any, error) {
		all := []dict{}
		for _, region := range slices.Sorted(maps.Keys(Projects)) {
			for _, key := range slices.Sorted(maps.Keys(presets)) {
				p, free := presets[key], dict{"data_state": "DATA_STATE_FRESH", "available": min(f.Free(r, region, key), 1000)}
				details := dict{"platform": p.platform, "preset": dict{"name": p.name, "resources": dict{"vcpu_count": p.cpus, "memory_gibibytes": p.memory, "gpu_count": p.gpu}}}
				all = append(all, dict{"metadata": dict{"parent_id": Tenant}, "spec": dict{"region": region, "compute_instance": details}, "status": dict{"on_demand": free, "preemptible": free}})
			}
		}
		return page(in, "items", all, 100)
	})
	// nebius/billing/v1/calculator_service.proto and v1alpha1's
	cost := func(spec any) (float64, error) {
		spec, _ = spec.(dict)["spec"].(dict)
		s, _ := spec.(dict)
		res, _ := s["resources"].(dict)
		p, ok := presets[str(res["platform"])+"_"+str(res["preset"])]
		if !ok {
			return 0, invalid("resource_specs", "there is no such preset")
		}
		if s["preemptible"] != nil {
			return f.Now(p.spot), nil
		}
		return f.Now(p.price), nil
	}
	total := func(sum float64) dict {
		return dict{"total": dict{"cost": fmt.Sprintf("%.6f", sum), "cost_rounded": fmt.Sprintf("%.2f", sum)}}
	}
	f.call("nebius.billing.v1.CalculatorService/EstimateBatch", "prices", fakehttp.Schema{"!resource_specs": `\[.+\]`}, func(_ *http.Request, in dict) (any, error) {
		each, sum := []dict{}, 0.0
		unit := dict{"unit": "hour", "unit_type": "UNIT_TYPE_TIME_BASED"}
		for _, s := range fakehttp.Items(in["resource_specs"]) {
			c, err := cost(s.(dict)["spec"])
			if err != nil {
				return nil, err
			}
			each, sum = append(each, dict{"aggregation_unit": unit, "general": total(c)}), sum+c
		}
		return dict{"resource_costs": each, "total_costs": []dict{{"aggregation_unit": unit, "general": total(sum)}}, "currency": "usd"}, nil
	})
	f.call("nebius.billing.v1alpha1.CalculatorService/EstimateBatch", "prices", fakehttp.Schema{"!resource_specs": `\[.+\]`}, func(_ *http.Request, in dict) (any, error) {
		sum := 0.0
		for _, s := range fakehttp.Items(in["resource_specs"]) {
			c, err := cost(s.(dict)["compute_instance_spec"])
			if err != nil {
				return nil, err
			}
			sum += c
		}
		return dict{"hourly_cost": dict{"general": total(sum)}, "monthly_cost": dict{"general": total(sum * 720)}}, nil
	})
}
