package gcpfake

import (
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// noticeTime is how long before its end a spot machine is told about it.
const noticeTime = 30 * time.Second

// Metadata is the metadata server of one machine, with what it says of its end:
// https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption.
// wait_for_change waits until the call is cancelled or there is something to say.
func (f *Fake) Metadata(id string) http.Handler {
	text := func(status int, body string) *fakehttp.Reply {
		return &fakehttp.Reply{Status: status, Header: map[string]string{"Metadata-Flavor": "Google", "Content-Type": "application/text"}, Body: fakehttp.Text(body)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			text(403, "Missing Metadata-Flavor:Google header.").Write(w)
			return
		}
		if r.URL.Path != "/computeMetadata/v1/instance/preempted" {
			text(404, "").Write(w)
			return
		}
		for {
			end := f.end(id)
			if !end.IsZero() && time.Until(end) <= noticeTime {
				text(200, "TRUE").Write(w)
				return
			}
			if r.URL.Query().Get("wait_for_change") != "true" {
				text(200, "FALSE").Write(w)
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// end is when a machine will be taken back; zero: nobody says.
func (f *Fake) end(id string) (at time.Time) {
	f.Locked(func() {
		m, _ := f.Machine(id)
		if v := f.vms[m.ID]; v != nil {
			at = v.takenBack
		}
		for _, n := range f.nodes {
			if n.id == m.ID {
				at = n.takenBack
			}
		}
	})
	return at
}
