package vm

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// EndpointVariable names another server in place of a cloud's API, in the environment of
// the API server: an emulator, or a gateway of one's own.
func EndpointVariable(cloudName string) string {
	return "SKY_" + strings.ToUpper(strings.ReplaceAll(cloudName, "-", "_")) + "_ENDPOINT"
}

// Endpoint is where the API of a cloud is called, without a slash at its end: what
// [EndpointVariable] says, else the standard. Calls carry credentials, so another server
// than the standard is reached by https, or on this machine.
func Endpoint(cloudName, standard string) (string, error) {
	variable := EndpointVariable(cloudName)
	address := strings.TrimRight(os.Getenv(variable), "/")
	if address == "" {
		return strings.TrimRight(standard, "/"), nil
	}
	to, err := url.Parse(address)
	switch {
	case err != nil || to.Host == "" || to.User != nil || to.RawQuery != "" || to.Fragment != "":
		err = fmt.Errorf("%s is no URL such as https://api.example.com/v1", variable) // which may hold a password
	case to.Scheme == "https" || to.Scheme == "http" && loopback(to.Hostname()):
		return address, nil
	default:
		err = fmt.Errorf("%s is %q, and credentials go by https, or by http to this machine", variable, address)
	}
	return "", &cloud.AuthError{Cloud: cloudName, Fix: "set " + variable + " of the API server to a URL such as https://api.example.com, or unset it, and start the server again", Err: err}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
