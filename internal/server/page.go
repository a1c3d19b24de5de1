package server

import (
	"html/template"
	"net/http"
	"net/url"

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

var logTemplate = template.Must(template.New("log").Parse(`<!doctype html>
<meta charset="utf-8"><title>{{.Title}}</title>
<style>body{margin:0;background:#111;color:#ddd;font:13px/1.45 ui-monospace,monospace}pre{margin:0;padding:1em;white-space:pre-wrap}</style>
<pre id="log"></pre>
<script>
const log = document.getElementById("log");
const text = new TextDecoder();
fetch({{.Source}}).then(async (answer) => {
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
`))

// logPage shows the log that /api/stream sends for the query.
func logPage(w http.ResponseWriter, title string, query url.Values) {
	query.Set("format", "plain")
	pageHeaders(w.Header())
	_ = logTemplate.Execute(w, map[string]string{"Title": title, "Source": "/api/stream?" + query.Encode()})
}

var dashboardTemplate = template.Must(template.New("dashboard").Parse(`<!doctype html>
<meta charset="utf-8"><title>sky</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:3em auto;max-width:60em;padding:0 1em}table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1.5em .2em 0}</style>
<h1>sky</h1>
<p>API server, version {{.}}. On the command line, <code>sky status</code> lists clusters and <code>sky api status</code> lists requests.</p>
<h2>Requests under way</h2>
<table id="t"><tr><th>Id<th>Name<th>User<th>Status</table>
<script>
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
`))

// dashboard is one small page: what the server is doing.
func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	if p := r.PathValue("path"); p != "" && p != "index.html" {
		fail(w, http.StatusNotFound, "There is no such page.")
		return
	}
	pageHeaders(w.Header())
	_ = dashboardTemplate.Execute(w, api.ProductVersion)
}

func redirect(to string) func(*Server, http.ResponseWriter, *http.Request) {
	return func(_ *Server, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}
}

// constant answers with the same JSON every time.
func constant(json string) func(*Server, http.ResponseWriter, *http.Request) {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(json))
	}
}

// notYet answers for routes that nothing stands behind.
func (s *Server) notYet(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusBadRequest, notSupported(r.URL.Path).Error())
}
