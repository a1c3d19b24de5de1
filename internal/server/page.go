package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/skypilot-go/sky/api"
)

const pagePolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageHeaders let a page run only the script that came with it, and nobody frame it.
func pageHeaders(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy+"; connect-src 'self'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// writePage writes one of this package's pages. What differs from one view to the
// next is JSON in an element that the page's script reads and puts in as text:
// the encoder escapes what could end the element, so that nothing else has to
// be. (A template engine would call methods by name, and the linker then keeps
// every method of every library: half of the binary.)
func writePage(w http.ResponseWriter, html string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, strings.Replace(html, dataHere, `<script type="application/json" id="data">`+string(b)+`</script>
<script>const data = JSON.parse(document.getElementById("data").textContent);</script>`, 1))
}

// dataHere is where a page gets its data; the scripts below it read "data".
const dataHere = "<!-- data -->"

const logHTML = `<!doctype html>
<meta charset="utf-8"><title>sky</title>
<style>body{margin:0;background:#111;color:#ddd;font:13px/1.45 ui-monospace,monospace}pre{margin:0;padding:1em;white-space:pre-wrap}</style>
<pre id="log"></pre>
` + dataHere + `
<script>
document.title = data.title;
const log = document.getElementById("log");
const text = new TextDecoder();
fetch(data.source).then(async (answer) => {
  const body = answer.body.getReader();
  for (;;) {
    const {done, value} = await body.read();
    if (done) break;
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
    log.append(text.decode(value, {stream: true}).replace(/\x1b\[[0-9;]*[A-Za-z]/g, ""));
    if (atEnd) scrollTo(0, document.body.scrollHeight);
  }
}).catch((e) => log.append("\n" + e));
</script>
`

// logPage shows the log that /api/stream sends for the query.
func logPage(w http.ResponseWriter, title string, query url.Values) {
	query.Set("format", "plain")
	pageHeaders(w.Header())
	writePage(w, logHTML, map[string]string{"title": title, "source": "/api/stream?" + query.Encode()})
}

const dashboardHTML = `<!doctype html>
<meta charset="utf-8"><title>sky</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:3em auto;max-width:60em;padding:0 1em}table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1.5em .2em 0}</style>
<h1>sky</h1>
<p>API server, version <span id="version"></span>. On the command line, <code>sky status</code> lists clusters and <code>sky api status</code> lists requests.</p>
<h2>Requests under way</h2>
<table id="t"><tr><th>Id<th>Name<th>User<th>Status</table>
` + dataHere + `
<script>
document.getElementById("version").textContent = data;
fetch("/api/status").then(r => r.json()).then(list => {
  for (const r of list) {
    const row = document.getElementById("t").insertRow();
    const link = document.createElement("a");
    link.href = "/api/stream?format=html&request_id=" + encodeURIComponent(r.request_id);
    link.textContent = r.request_id;
    row.insertCell().append(link);
    for (const v of [r.name, r.user_name || r.user_id, r.status]) row.insertCell().textContent = v;
  }
});
</script>
`

// dashboard is one small page: what the server is doing. Every other page that clients
// know (clusters, jobs, users, infra, …) leads to it; a script or style of another
// build of the dashboard does not exist.
func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	p := r.PathValue("path")
	if first, _, _ := strings.Cut(p, "/"); first == "_next" {
		w.Header().Set("Cache-Control", "no-store")
		fail(w, http.StatusNotFound, "There is no such file.")
		return
	}
	if p != "" && p != "index.html" {
		http.Redirect(w, r, "/dashboard/", http.StatusTemporaryRedirect)
		return
	}
	pageHeaders(w.Header())
	writePage(w, dashboardHTML, api.ProductVersion)
}

func redirect(to string) func(*Server, http.ResponseWriter, *http.Request) {
	return func(_ *Server, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}
}

// dashboardConfig is what the configuration says of pages.
func (s *Server) dashboardConfig(w http.ResponseWriter, _ *http.Request) {
	links := s.Rules().Links
	if links == nil {
		links = []any{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"external_links": links})
}

// noInteractiveLogin answers whom a log sent to a login that waits for a person.
// No log of this server does: it reaches machines with keys and passwords that
// it has, and a request that lacks one fails and says so.
func (s *Server) noInteractiveLogin(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "No login waits for you: this server asks nobody while it reaches a machine.")
}

// notYet answers for routes that nothing stands behind.
func (s *Server) notYet(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusBadRequest, notSupported(r.URL.Path).Error())
}
