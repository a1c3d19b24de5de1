package aws

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

type fips struct{}

func (fips) GetUseFIPSEndpoint(context.Context) (sdk.FIPSEndpointState, bool, error) {
	return sdk.FIPSEndpointStateEnabled, true, nil
}

func TestWhereIAMIsCalled(t *testing.T) {
	for _, tt := range []struct {
		region           string
		sources          []any
		env              string
		endpoint, signed string
	}{
		{"us-east-1", nil, "", "https://iam.amazonaws.com", "us-east-1"},
		{"eu-west-1", nil, "", "https://iam.amazonaws.com", "us-east-1"},
		{"eu-west-1", []any{fips{}}, "", "https://iam-fips.amazonaws.com", "us-east-1"},
		{"us-gov-east-1", []any{fips{}}, "", "https://iam.us-gov.amazonaws.com", "us-gov-west-1"},
		{"cn-northwest-1", nil, "", "https://iam.cn-north-1.amazonaws.com.cn", "cn-north-1"},
		{"eu-west-1", nil, "http://127.0.0.1:1", "http://127.0.0.1:1", "us-east-1"},
	} {
		t.Setenv("AWS_ENDPOINT_URL_IAM", tt.env)
		endpoint, region := iamEndpoint(t.Context(), sdk.Config{Region: tt.region, ConfigSources: tt.sources})
		if endpoint != tt.endpoint || region != tt.signed {
			t.Errorf("%+v: %s, signed for %s", tt, endpoint, region)
		}
	}
}

// iamServer answers the n-th call, from 1 on, with what answer gives.
func iamServer(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) (p *Provider, calls *int) {
	t.Helper()
	calls = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*calls++
		answer(*calls, w, r)
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	return New(Options{Retries: 3, Backoff: time.Millisecond, Poll: time.Millisecond}), calls
}

const anIAMRole = `<GetRoleResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><GetRoleResult><Role><Arn>arn:r</Arn></Role></GetRoleResult>` +
	`<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></GetRoleResponse>`

func refuseXML(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>m</Message></Error></ErrorResponse>`, code)
}

func TestCallsOfIAMAreRepeated(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		code   string
		calls  int
		want   string // the code that is left
	}{
		{"asked too often", 400, "Throttling", 2, ""},
		{"out of order", 503, "ServiceUnavailable", 2, ""},
		{"refused", 403, "AccessDenied", 1, "AccessDenied"},
		{"not there", 404, "NoSuchEntity", 1, "NoSuchEntity"},
	} {
		p, calls := iamServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				refuseXML(w, tt.status, tt.code)
				return
			}
			fmt.Fprint(w, anIAMRole)
		})
		var role roleAnswer
		err := p.iam(t.Context(), "GetRole", &role, "RoleName", "r")
		if codeOf(err) != tt.want || *calls != tt.calls || tt.want == "" && role.Got != "arn:r" || tt.want != "" && status(err) != tt.status {
			t.Errorf("%s: %d calls, %+v, %v", tt.name, *calls, role, err)
		}
	}
	p, calls := iamServer(t, func(n int, w http.ResponseWriter, r *http.Request) { refuseXML(w, 503, "ServiceUnavailable") })
	if err := p.iam(t.Context(), "GetRole", nil); codeOf(err) != "ServiceUnavailable" || *calls != 3 {
		t.Errorf("never in order: %d calls, %v", *calls, err)
	}
	p, calls = iamServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n < 3 {
			panic(http.ErrAbortHandler) // the connection is closed without an answer
		}
		fmt.Fprint(w, anIAMRole)
	})
	if err := p.iam(t.Context(), "GetRole", nil); err != nil || *calls != 3 {
		t.Errorf("lost answers: %d calls, %v", *calls, err)
	}
}

// A clock that is wrong is corrected by what AWS answers.
func TestSignaturesOfAWrongClock(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		p, calls := iamServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			now := time.Now().Add(wrong)
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
			if at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || now.Sub(at).Abs() > 5*time.Minute {
				refuseXML(w, 403, "SignatureDoesNotMatch")
				return
			}
			fmt.Fprint(w, anIAMRole)
		})
		if err := p.iam(t.Context(), "GetRole", nil); err != nil || *calls != 2 {
			t.Errorf("%v: %d calls, %v", wrong, *calls, err)
		}
	}
}
