package cli

import "github.com/skypilot-go/sky/internal/config"

// saveEndpoint writes api_server.endpoint and api_server.service_account_token
// into a configuration file; empty ones are removed. The other settings stay.
// The old token goes first, so that no crash leaves it beside an endpoint that
// it was not made for.
func saveEndpoint(path, endpoint, token string) error {
	if err := config.Unset(path, []string{"api_server", "service_account_token"}); err != nil {
		return err
	}
	for _, s := range []struct{ key, value string }{{"endpoint", endpoint}, {"service_account_token", token}} {
		keys := []string{"api_server", s.key}
		var err error
		if s.value == "" {
			err = config.Unset(path, keys)
		} else {
			err = config.Set(path, keys, s.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
