package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// adminTimeout bounds one call of an operator.
const adminTimeout = 30 * time.Second

// admin asks the server of the cloud in dir as its operator.
func admin(ctx context.Context, dir string, args []string, out io.Writer) error {
	if len(args) < 2 || len(args) > 3 {
		return &usageError{"admin needs METHOD PATH [JSON]"}
	}
	text := "{}"
	if len(args) == 3 {
		text = args[2]
	}
	b, err := Admin(ctx, dir, args[0], args[1], strings.NewReader(text))
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

// Admin does one call below /admin with the operator's credentials, which are
// in the cloud's folder.
func Admin(ctx context.Context, dir, method, path string, body io.Reader) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, "admin-credentials"))
	if err != nil {
		return nil, err
	}
	var endpoint, token string
	if _, err := fmt.Sscanf(string(b), "endpoint = %s\ntoken = %s\n", &endpoint, &token); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, "admin-credentials"), err)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(method), endpoint+"/admin/"+strings.TrimPrefix(path, "/"), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the server of %s does not answer: %w", dir, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
