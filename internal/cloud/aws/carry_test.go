package aws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/aws"
)

// What nodes get is a session that ends, the same until half of its time is over.
func TestASessionIsLent(t *testing.T) {
	start(t)
	p := with(aws.Settings{})
	first, until, err := p.LendCredentials(t.Context())
	if err != nil || time.Until(until) < 35*time.Hour || !strings.Contains(string(first[".aws/credentials"]), "aws_session_token = session-token\n") {
		t.Fatalf("%s, %v, %v", first[".aws/credentials"], until, err)
	}
	if again, _, err := p.LendCredentials(t.Context()); err != nil || string(again[".aws/credentials"]) != string(first[".aws/credentials"]) {
		t.Errorf("%s, %v", again, err)
	}
}
