package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Meaning is what a refusal of an API says.
type Meaning int

const (
	Unclear         Meaning = iota // nobody knows: it closes the place that was tried
	Full                           // no such machine is left in the place
	OverQuota                      // the account may not have more, in the region
	OverQuotaAll                   // the account may not have more, anywhere
	BadCredentials                 //
	Forbidden                      // the credentials may not do this, anywhere
	ForbiddenHere                  // nor in the place, which may be all
	Invalid                        // the request cannot work in the place
	InvalidInRegion                // nor in the region
	InvalidAnywhere                // nor anywhere
	Throttled                      // one call too many
	NoAnswer                       // it proves nothing
	NotThere                       // what is named does not exist
	Moved                          // what is named is in another state by now
	InUse                          // what is to be removed is needed still
)

// Refusals say what the errors of an API mean, and make a driver's Refusal and Kind of
// that. A meaning is looked for by code, then by text, then by code among the vague ones,
// then by status.
type Refusals struct {
	Cloud, DisplayName string
	Fix                string             // of credentials
	Fixes              map[string]string  // of credentials that are refused with a code, a text or a status
	Codes              map[string]Meaning // "a/*" is all that begin with "a/"
	Texts              []Text             // of APIs whose codes and statuses say too little; the first counts
	Vague              map[string]Meaning // codes of several reasons, which texts tell apart
	Statuses           map[int]Meaning    // besides the usual ones
}

// Text is what a message means that holds certain words, of small letters.
type Text struct {
	Holds string
	Means Meaning
}

// usual is what statuses mean everywhere.
var usual = map[int]Meaning{
	http.StatusUnauthorized: BadCredentials, http.StatusForbidden: Forbidden, http.StatusTooManyRequests: Throttled,
	http.StatusNotFound: NotThere, http.StatusGone: NotThere, http.StatusConflict: InUse,
}

// refused is an answer of an API that had no effect.
type refused interface {
	error
	Refused() (code string, status int, message string)
}

// reading is what an answer of an API means, and by what.
type reading struct {
	Meaning
	code   string
	status int
	listed bool // it has a row of its own: the status alone does not say it
}

// means is the meaning of an error; false: it is no answer of the API.
func (r Refusals) means(err error) (reading, bool) {
	var answer refused
	if !errors.As(err, &answer) {
		return reading{Meaning: NoAnswer}, false
	}
	code, status, message := answer.Refused()
	if m, ok := r.Codes[code]; ok {
		return reading{m, code, status, true}, true
	}
	for prefix, m := range r.Codes {
		if p, ok := strings.CutSuffix(prefix, "*"); ok && strings.HasPrefix(code, p) {
			return reading{m, code, status, true}, true
		}
	}
	message = strings.ToLower(message)
	for _, t := range r.Texts {
		if strings.Contains(message, t.Holds) {
			return reading{t.Means, cmp.Or(code, t.Holds), status, true}, true
		}
	}
	if m, ok := r.Vague[code]; ok {
		return reading{m, code, status, true}, true
	}
	if m, ok := r.Statuses[status]; ok {
		return reading{m, code, status, false}, true
	}
	return reading{usual[status], code, status, false}, true
}

// Means is the meaning of an error, NoAnswer if it is no answer of the API.
func (r Refusals) Means(err error) Meaning {
	m, _ := r.means(err)
	return m.Meaning
}

// Knows reports whether a code has a meaning.
func (r Refusals) Knows(code string) bool {
	_, exact := r.Codes[code]
	_, vague := r.Vague[code]
	return exact || vague
}

// Refusal is a driver's Refusal.
func (r Refusals) Refusal(ctx context.Context, at cloud.Place, err error) error {
	m, ok := r.means(err)
	var lost *rest.NoAnswerError
	switch {
	case !ok && !errors.As(err, &lost): // such as a lack of credentials
		return err
	case m.Meaning == NoAnswer && ctx.Err() != nil:
		return fmt.Errorf("asking %s: %w", r.DisplayName, context.Cause(ctx))
	}
	said := r.Say(m.Meaning, at, cmp.Or(r.Fixes[m.code], r.Fixes[strconv.Itoa(m.status)], r.Fix), err)
	if ok && !m.listed && (m.code != "" || m.Meaning == Unclear) && meant(said) == meantNothing {
		return &cloud.UnknownError{Code: cmp.Or(m.code, strconv.Itoa(m.status)), Err: said}
	}
	return said
}

// Say is an error in the words of package cloud. fix is for bad credentials.
func (r Refusals) Say(m Meaning, at cloud.Place, fix string, err error) error {
	everywhere, region := cloud.Place{Cloud: r.Cloud}, cloud.Place{Cloud: r.Cloud, Region: at.Region}
	switch m {
	case Full:
		return &cloud.CapacityError{Place: at, Err: err}
	case OverQuota:
		return &cloud.QuotaError{Place: region, Err: err}
	case OverQuotaAll:
		return &cloud.QuotaError{Place: everywhere, Err: err}
	case BadCredentials:
		return &cloud.AuthError{Cloud: r.Cloud, Fix: fix, Err: err}
	case Forbidden:
		return &cloud.PermissionError{Place: everywhere, Err: err}
	case ForbiddenHere:
		return &cloud.PermissionError{Place: at, Err: err}
	case InvalidAnywhere:
		return &cloud.InvalidError{Place: everywhere, Err: err}
	case Invalid:
		return &cloud.InvalidError{Place: at, Err: err}
	case InvalidInRegion, NotThere:
		return &cloud.InvalidError{Place: region, Err: err}
	case Throttled:
		return &cloud.ThrottledError{Err: err}
	case NoAnswer:
		return &cloud.UnreachableError{Err: err}
	}
	return fmt.Errorf("%s refused: %w", r.DisplayName, err)
}

// Kind is a driver's Kind.
func (r Refusals) Kind(err error) Kind {
	switch r.Means(err) {
	case NoAnswer:
		return Lost
	case NotThere:
		return Missing
	case Moved:
		return Changed
	case InUse:
		return Busy
	}
	return Refused
}
