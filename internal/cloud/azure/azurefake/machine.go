package azurefake

import (
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

// noticeTime is how long before its end a spot machine is told about it, at least.
const noticeTime = 30 * time.Second

// Metadata is the metadata service of one machine, with the events that are to come:
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events.
func (f *Fake) Metadata(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := func(status int, body any) { (&fakehttp.Reply{Status: status, Body: body}).Write(w) }
		switch {
		case r.URL.Path != "/metadata/scheduledevents":
			say(404, dict{"error": "Not found"})
			return
		case r.Header.Get("Metadata") != "true":
			say(400, dict{"error": "Bad request. Required metadata header not specified"})
			return
		case r.URL.Query().Get("api-version") == "":
			say(400, dict{"error": "Bad request. api-version was not specified in the request"})
			return
		}
		name, at := "", time.Time{}
		f.Locked(func() {
			m, _ := f.Machine(id)
			for key, v := range f.vms {
				if v.id == m.ID && v.id != "" {
					name, at = f.items[key]["name"].(string), v.takenBack
				}
			}
		})
		if at.IsZero() || time.Until(at) > noticeTime {
			say(200, dict{"DocumentIncarnation": 1, "Events": []any{}})
			return
		}
		say(200, dict{"DocumentIncarnation": 2, "Events": []any{dict{
			"EventId": "602d9444-d2cd-49c7-8624-8643e7171297", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": []any{name}, "EventStatus": "Scheduled",
			"NotBefore": at.UTC().Format(http.TimeFormat), "Description": "", "EventSource": "Platform", "DurationInSeconds": -1,
		}}})
	})
}
