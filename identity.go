package sky

import (
	"bufio"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
)

// environ is a list of KEY=value.
type environ []string

// Get returns the last value of key, "" if there is none.
func (e environ) Get(key string) string {
	for i := len(e) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(e[i], "="); ok && k == key {
			return v
		}
	}
	return ""
}

func (e environ) home() string {
	if h := e.Get("HOME"); h != "" {
		return h
	}
	h, _ := os.UserHomeDir()
	return h
}

var userIDPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]*$`) })

// identity completes who: id from SKYPILOT_USER_ID, else ~/.sky/user_hash, which
// is made on first use; name from SKYPILOT_USER, else the system's user.
func identity(env environ, who api.User) (api.User, error) {
	if who.ID == "" {
		who.ID = env.Get(api.EnvUserID)
	}
	if who.Name == "" {
		who.Name = env.Get(api.EnvUser)
	}
	if who.Name == "" {
		who.Name = systemUser(env)
	}
	if who.ID == "" {
		id, err := StoredUserID(env.home())
		if err != nil {
			return who, err
		}
		who.ID = id
	}
	if !userIDPattern().MatchString(who.ID) {
		return who, fmt.Errorf("user id %q may hold only letters, digits and dashes; see %s and ~/.sky/user_hash", who.ID, api.EnvUserID)
	}
	return who, nil
}

func systemUser(env environ) string {
	for _, k := range [...]string{"LOGNAME", "USER", "USERNAME"} {
		if v := env.Get(k); v != "" {
			return v
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// StoredUserID is the id in ~/.sky/user_hash of a home folder, which is made when
// there is no such file. One that cannot be read is an error: another id in its place
// would hide everything that was launched with the first one.
func StoredUserID(home string) (string, error) {
	return storedUserID(filepath.Join(home, ".sky", "user_hash"))
}

// storedUserID reads the id at path, or writes a new one. Of several processes
// that do so at once, one wins and all use its id.
func storedUserID(path string) (string, error) {
	if id, err := readUserID(path); !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	sum := md5.Sum([]byte(uuid.NewString()))
	id := hex.EncodeToString(sum[:])[:8]
	failed := func(err error) (string, error) { return "", fmt.Errorf("keeping your user id: %w", err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return failed(err)
	}
	tmp := path + "." + id
	defer os.Remove(tmp)
	if err := writeSynced(tmp, id); err != nil {
		return failed(err)
	}
	err := os.Link(tmp, path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // no hard links here
		if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(tmp, path)
		}
		if err != nil {
			return failed(err)
		}
	}
	return readUserID(path)
}

func readUserID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("your user id cannot be read, which says which clusters are yours: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if !userIDPattern().MatchString(id) {
		is := fmt.Sprintf("holds %.40q, which is no user id (letters, digits and dashes)", id)
		if id == "" {
			is = "is empty"
		}
		return "", fmt.Errorf("%[1]s %[2]s. The id in it says which clusters are yours. Put back the 8 characters that were in it; "+
			"`%[3]s=00000000 sky status -u -o json` lists everybody's clusters with their ids (user_hash). "+
			"If you have no clusters, remove the file to get a new id: rm %[1]s", path, is, api.EnvUserID)
	}
	return id, nil
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// cloudVars go along to a local server, which works with the caller's own
// credentials.
var cloudVars = [...]string{
	"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID",
	"GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG",
}

// private variables of the client stay here.
var privateVars = map[string]bool{
	"SKYPILOT_GLOBAL_CONFIG": true, "SKYPILOT_PROJECT_CONFIG": true, "SKYPILOT_CONFIG": true,
	"SKYPILOT_DB_CONNECTION_URI": true, "SKYPILOT_SERVICE_ACCOUNT_TOKEN": true, "SKYPILOT_API_COOKIE_FILE": true,
}

// requestEnv is the env_vars field of every request.
func requestEnv(env environ, who api.User, local bool) map[string]string {
	vars := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(k, "SKYPILOT_") && !strings.HasPrefix(k, "SKYPILOT_SERVER_") && !privateVars[k] {
			vars[k] = v
		}
	}
	if local {
		for _, k := range cloudVars {
			if v := env.Get(k); v != "" {
				vars[k] = v
			}
		}
	}
	if u, err := url.Parse(vars["SKYPILOT_API_SERVER_ENDPOINT"]); err == nil && u.User != nil {
		delete(vars, "SKYPILOT_API_SERVER_ENDPOINT")
	}
	vars[api.EnvUserID] = who.ID
	vars[api.EnvUser] = who.Name
	vars["SKYPILOT_USAGE_RUN_ID"] = uuid.NewString()
	return vars
}

// CookieFile is where the cookies of a browser login are kept.
func CookieFile(getenv func(string) string) string {
	if f := getenv("SKYPILOT_API_COOKIE_FILE"); f != "" {
		return f
	}
	home := getenv("HOME")
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	return filepath.Join(home, ".sky", "cookies.txt")
}

// readCookies reads those cookies of the Netscape file that fit the server.
func readCookies(env environ, base *url.URL) []*http.Cookie {
	f, err := os.Open(CookieFile(env.Get))
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []*http.Cookie
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimPrefix(s.Text(), "#HttpOnly_")
		fields := strings.Split(line, "\t")
		if len(fields) < 7 || strings.HasPrefix(line, "#") {
			continue
		}
		domain, host := strings.TrimPrefix(fields[0], "."), base.Hostname()
		if host != domain && !strings.HasSuffix(host, "."+domain) {
			continue
		}
		if fields[3] == "TRUE" && base.Scheme != "https" {
			continue
		}
		out = append(out, &http.Cookie{Name: fields[5], Value: fields[6]})
	}
	return out
}

// WriteCookies replaces the cookie file by the given cookies for one server.
func WriteCookies(getenv func(string) string, endpoint string, cookies map[string]string) error {
	u, err := ParseEndpoint(endpoint)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Netscape HTTP Cookie File\n")
	for name, value := range cookies {
		secure := strings.ToUpper(strconv.FormatBool(u.Scheme == "https"))
		fmt.Fprintf(&b, "%s\tFALSE\t/\t%s\t0\t%s\t%s\n", u.Hostname(), secure, name, value)
	}
	path := CookieFile(getenv)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}
