package serve

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// maxBody is more than the largest request.
const maxBody = 1 << 20

type server struct {
	cloud *model.Cloud
	keys  keys
	log   *slog.Logger
}

// routes is every route, for customers and for operators.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	customer := func(pattern string, f func(a *model.Account, r *http.Request) (any, error)) {
		mux.Handle(pattern, s.answer(func(r *http.Request) (any, error) {
			k, ok := s.keys.of(r)
			switch {
			case !ok:
				return nil, fluffyapi.Errorf(fluffyapi.Unauthorized, "the token is missing or nobody's")
			case k.Role == "admin":
				return nil, fluffyapi.Errorf(fluffyapi.Forbidden, "the operator's token is no customer's")
			}
			return f(s.cloud.Account(k.Account, k.Role), r)
		}))
	}
	operator := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.Handle(pattern, s.answer(func(r *http.Request) (any, error) {
			k, ok := s.keys.of(r)
			switch {
			case !ok:
				return nil, fluffyapi.Errorf(fluffyapi.Unauthorized, "the token is missing or nobody's")
			case k.Role != "admin":
				return nil, fluffyapi.Errorf(fluffyapi.Forbidden, "this is the operator's business")
			}
			return f(r)
		}))
	}

	customer("GET /v1/account", func(a *model.Account, r *http.Request) (any, error) { return a.Account(r.Context()) })
	customer("GET /v1/offers", func(a *model.Account, r *http.Request) (any, error) {
		return list(r, func(q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Offer], error) { return a.Offers(r.Context(), q) })
	})
	customer("GET /v1/availability", func(a *model.Account, r *http.Request) (any, error) {
		v := r.URL.Query()
		spot, _ := strconv.ParseBool(v.Get("spot"))
		n, err := a.Available(r.Context(), v.Get("zone"), v.Get("type"), spot)
		return fluffyapi.Availability{Available: n}, err
	})
	customer("GET /v1/quotas", func(a *model.Account, r *http.Request) (any, error) {
		q, err := a.Quotas(r.Context(), r.URL.Query().Get("region"))
		return fluffyapi.Page[fluffyapi.Quota]{Items: q}, err
	})
	customer("POST /v1/instances", func(a *model.Account, r *http.Request) (any, error) {
		in, err := body[fluffyapi.Create](r)
		if err != nil {
			return nil, err
		}
		return a.Create(r.Context(), in)
	})
	customer("GET /v1/instances", func(a *model.Account, r *http.Request) (any, error) {
		return list(r, func(q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
			return a.Instances(r.Context(), q)
		})
	})
	customer("GET /v1/instances/{id}", func(a *model.Account, r *http.Request) (any, error) {
		return a.Instance(r.Context(), r.PathValue("id"))
	})
	customer("POST /v1/instances/{id}/start", func(a *model.Account, r *http.Request) (any, error) {
		in, err := body[fluffyapi.Start](r)
		if err != nil {
			return nil, err
		}
		return a.Start(r.Context(), r.PathValue("id"), in)
	})
	customer("POST /v1/instances/{id}/stop", func(a *model.Account, r *http.Request) (any, error) {
		return a.Stop(r.Context(), r.PathValue("id"))
	})
	customer("DELETE /v1/instances/{id}", func(a *model.Account, r *http.Request) (any, error) {
		return a.Terminate(r.Context(), r.PathValue("id"))
	})
	customer("PUT /v1/instances/{id}/when-off", func(a *model.Account, r *http.Request) (any, error) {
		in, err := body[fluffyapi.WhenOff](r)
		if err != nil {
			return nil, err
		}
		return a.SetWhenOff(r.Context(), r.PathValue("id"), in)
	})
	customer("POST /v1/images", func(a *model.Account, r *http.Request) (any, error) {
		in, err := body[fluffyapi.CreateImage](r)
		if err != nil {
			return nil, err
		}
		return a.CreateImage(r.Context(), in)
	})
	customer("GET /v1/images", func(a *model.Account, r *http.Request) (any, error) {
		return list(r, func(q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Image], error) { return a.Images(r.Context(), q) })
	})
	customer("DELETE /v1/images/{id}", func(a *model.Account, r *http.Request) (any, error) {
		return struct{}{}, a.DeleteImage(r.Context(), r.PathValue("id"))
	})
	customer("PUT /v1/firewalls/{name}", func(a *model.Account, r *http.Request) (any, error) {
		f, err := body[fluffyapi.Firewall](r)
		if err != nil {
			return nil, err
		}
		f.Name = r.PathValue("name")
		return f, a.PutFirewall(r.Context(), f)
	})
	customer("GET /v1/firewalls", func(a *model.Account, r *http.Request) (any, error) {
		return list(r, func(q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Firewall], error) {
			return a.Firewalls(r.Context(), q)
		})
	})
	customer("DELETE /v1/firewalls/{name}", func(a *model.Account, r *http.Request) (any, error) {
		return struct{}{}, a.DeleteFirewall(r.Context(), r.PathValue("name"))
	})
	s.operatorRoutes(operator)
	mux.Handle("/", s.answer(func(r *http.Request) (any, error) {
		return nil, fluffyapi.Errorf(fluffyapi.NotFound, "there is no %s %s", r.Method, r.URL.Path)
	}))
	return mux
}

// answer writes what f returns. A call that gets no answer is cut off.
func (s *server) answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		if err == nil {
			write(w, http.StatusOK, v)
			return
		}
		var refusal *fluffyapi.Error
		var silent *rest.NoAnswerError
		switch {
		case errors.As(err, &refusal):
		case errors.As(err, &silent):
			panic(http.ErrAbortHandler)
		default:
			s.log.Error("call failed", "path", r.URL.Path, "err", err)
			refusal = fluffyapi.Errorf(fluffyapi.Internal, "something went wrong here")
		}
		write(w, refusal.Code.Status(), map[string]any{"error": refusal})
	})
}

func write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that left needs none
}

func body[T any](r *http.Request) (T, error) {
	var v T
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fluffyapi.Errorf(fluffyapi.Invalid, "the body does not fit: %v", err)
	}
	return v, nil
}

func list[T any](r *http.Request, f func(fluffyapi.Query) (fluffyapi.Page[T], error)) (any, error) {
	q, err := fluffyapi.DecodeQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	p, err := f(q)
	if p.Items == nil {
		p.Items = []T{}
	}
	return p, err
}
