package aws_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

// lender gives out the fake account's credentials in all the ways in which AWS
// does, and passes on everything else. lent are the ways that were asked for.
type lender struct {
	account http.Handler
	lent    map[string]bool
}

func (l *lender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, _ := url.ParseQuery(string(body))
	until := time.Now().Add(time.Hour).UTC()
	give := func(way, format string, args ...any) {
		l.lent[way] = true
		fmt.Fprintf(w, format, args...)
	}
	const inXML = `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId><SecretAccessKey>%[3]s</SecretAccessKey>` +
		`<SessionToken>t</SessionToken><Expiration>%[4]s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`
	switch action := form.Get("Action"); {
	case action == "AssumeRole" && form.Get("RoleArn") == "arn:aws:iam::123456789012:role/work",
		action == "AssumeRoleWithWebIdentity" && form.Get("WebIdentityToken") == "a token":
		give(action, inXML, action, awsfake.AccessKey, awsfake.SecretKey, until.Format(time.RFC3339))
	case r.URL.Path == "/federation/credentials" && r.Header.Get("X-Amz-Sso_bearer_token") == "signed in":
		give("sso", `{"roleCredentials":{"accessKeyId":%q,"secretAccessKey":%q,"sessionToken":"t","expiration":%d}}`, awsfake.AccessKey, awsfake.SecretKey, until.UnixMilli())
	case r.URL.Path == "/container" && r.Header.Get("Authorization") == "let me in":
		give("container", `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":"t","Expiration":%q}`, awsfake.AccessKey, awsfake.SecretKey, until.Format(time.RFC3339))
	case r.URL.Path == "/latest/api/token":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
		fmt.Fprint(w, "imds")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "machine-role")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/machine-role" && r.Header.Get("X-Aws-Ec2-Metadata-Token") == "imds":
		give("machine", `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":%q,"SecretAccessKey":%q,"Token":"t","Expiration":%q}`, awsfake.AccessKey, awsfake.SecretKey, until.Format(time.RFC3339))
	default:
		l.account.ServeHTTP(w, r)
	}
}

// Every form of credentials that the tools of AWS know lets sky in.
func TestCredentialsOfEveryForm(t *testing.T) {
	const keys = "aws_access_key_id = " + awsfake.AccessKey + "\naws_secret_access_key = " + awsfake.SecretKey + "\n"
	for _, tt := range []struct {
		name        string
		env         map[string]string
		config      string // ~/.aws/config
		credentials string // ~/.aws/credentials
		files       map[string]string
		profile     string   // aws.profile of the configuration
		lent        []string // what must have been asked for
	}{
		{name: "environment", env: map[string]string{"AWS_ACCESS_KEY_ID": awsfake.AccessKey, "AWS_SECRET_ACCESS_KEY": awsfake.SecretKey}},
		{name: "shared credentials file", credentials: "[default]\n" + keys},
		{name: "a profile by the environment", credentials: "[lab]\n" + keys, env: map[string]string{"AWS_PROFILE": "lab"}},
		{name: "a profile by the configuration", credentials: "[default]\naws_access_key_id = A\naws_secret_access_key = B\n[lab]\n" + keys, profile: "lab"},
		{name: "keys in the config file", config: "[default]\n" + keys},
		{name: "a role of another profile", config: "[default]\nrole_arn = arn:aws:iam::123456789012:role/work\nsource_profile = base\n", credentials: "[base]\n" + keys, lent: []string{"AssumeRole"}},
		{name: "a role of the machine's", config: "[default]\nrole_arn = arn:aws:iam::123456789012:role/work\ncredential_source = Ec2InstanceMetadata\n",
			env: map[string]string{"AWS_EC2_METADATA_DISABLED": "false"}, lent: []string{"AssumeRole", "machine"}},
		{name: "a program", config: "[default]\ncredential_process = cat HOME/keys.json\n",
			files: map[string]string{"keys.json": fmt.Sprintf(`{"Version":1,"AccessKeyId":%q,"SecretAccessKey":%q}`, awsfake.AccessKey, awsfake.SecretKey)}},
		{name: "a web identity", env: map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "HOME/token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/work"},
			files: map[string]string{"token": "a token"}, lent: []string{"AssumeRoleWithWebIdentity"}},
		{name: "a container's role", env: map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "SERVER/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "let me in"}, lent: []string{"container"}},
		{name: "single sign-on", config: "[default]\nsso_session = team\nsso_account_id = 123456789012\nsso_role_name = work\n[sso-session team]\nsso_region = us-east-1\nsso_start_url = https://team.example/start\n",
			files: map[string]string{".aws/sso/cache/" + sum("team") + ".json": fmt.Sprintf(`{"accessToken":"signed in","expiresAt":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))}, lent: []string{"sso"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := awsfake.New()
			l := &lender{account: fake, lent: map[string]bool{}}
			server := httptest.NewServer(l)
			t.Cleanup(server.Close)
			t.Cleanup(fake.Restore)
			home := t.TempDir()
			fill := func(s string) string { return strings.NewReplacer("HOME", home, "SERVER", server.URL).Replace(s) }
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
				"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"} {
				t.Setenv(name, fill(tt.env[name]))
			}
			// The SDK has looked up the home folder already, when the process began.
			for name, value := range map[string]string{"HOME": home, "AWS_CONFIG_FILE": home + "/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": home + "/.aws/credentials", "AWS_ENDPOINT_URL": server.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.URL, "AWS_EC2_METADATA_DISABLED": "true"} {
				t.Setenv(name, value)
			}
			if v, ok := tt.env["AWS_EC2_METADATA_DISABLED"]; ok {
				t.Setenv("AWS_EC2_METADATA_DISABLED", v)
			}
			files := map[string]string{".aws/config": tt.config, ".aws/credentials": tt.credentials}
			for name, content := range tt.files {
				files[name] = content
			}
			for name, content := range files {
				if content == "" {
					continue
				}
				file := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(fill(content)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := with(aws.Settings{Profile: tt.profile})
			who, err := p.Check(t.Context())
			if err != nil || len(who) == 0 {
				t.Fatalf("%v, %v", who, err)
			}
			for _, way := range tt.lent {
				if !l.lent[way] {
					t.Errorf("%s was not asked for, only %v", way, l.lent)
				}
			}
		})
	}
}

func sum(s string) string {
	h := sha1.Sum([]byte(s))
	return hex.EncodeToString(h[:])
}
