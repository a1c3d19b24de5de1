package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestLargeResultsAreSmallInTheDatabase(t *testing.T) {
	var list strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&list, `{"job_id":%d,"job_name":"train","status":"SUCCEEDED","resources":"1x[CPU:2+]"},`, i)
	}
	backends(t, func(t *testing.T, s *Store) {
		for name, result := range map[string]string{
			"none": "", "small": `{"a":1}`, "large": "[" + list.String() + "null]", "no JSON": strings.Repeat("\x28\xb5\x2f\xfd", 2000),
		} {
			r := fullRequest(name)
			ok(t, s.Requests().Create(t.Context(), r))
			one := must(s.Requests().Claim(t.Context(), r, "s1"))(t)
			one.Status, one.ReturnValue = api.RequestSucceeded, []byte(result)
			ok(t, s.Requests().Finish(t.Context(), one))
			if got := must(s.Requests().Get(t.Context(), name))(t); string(got.ReturnValue) != result {
				t.Errorf("%s: %d bytes came back of %d", name, len(got.ReturnValue), len(result))
			}
			var n int
			ok(t, s.db.read(t.Context()).one([]any{number(&n)}, `SELECT COALESCE(length(return_value), 0) FROM requests WHERE id = ?`, name))
			if len(result) > packAbove && n > len(result)/5 || n > len(result)+200 {
				t.Errorf("%s: %d bytes are stored for %d", name, n, len(result))
			}
		}
	})
}

func TestAResultThatIsNoWholePackIsAnError(t *testing.T) {
	packed := pack(bytes.Repeat([]byte("a"), 2*packAbove))
	if _, err := unpack(packed[:len(packed)/2]); err == nil {
		t.Error("half a pack was read")
	}
}
