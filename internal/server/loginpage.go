package server

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

// authorizePath is where the login page agrees to a login.
const authorizePath = "/api/v1/auth/authorize"

const pageStyle = `<style>body{font:15px/1.5 system-ui,sans-serif;margin:3em auto;max-width:40em;padding:0 1em}button{font:inherit;padding:.4em 1.2em}textarea{width:100%;font:12px ui-monospace,monospace}</style>`

const authorizeHTML = `<!doctype html>
<meta charset="utf-8"><title>Log in to sky</title>` + pageStyle + `
<h1>Log in to sky</h1>
<p id="you" hidden>You are <b id="user"></b>.</p>
<p>A command line asks to act as you on this server. Agree only if you have just run <code>sky api login</code>.</p>
<p><button id="yes">Agree</button></p><p id="done" role="status"></p>
` + dataHere + `
<script>
if (data.user) { document.getElementById("user").textContent = data.user; document.getElementById("you").hidden = false; }
document.getElementById("yes").onclick = async () => {
  const done = document.getElementById("done");
  try {
    const answer = await fetch(data.path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({code_challenge: data.challenge})});
    done.textContent = answer.ok ? "Done. You can close this page." : (await answer.json()).detail;
  } catch (e) { done.textContent = "The server cannot be reached: " + e; }
};
</script>
`

// authorizePage asks the user, who is logged in here, whether a command line may
// log in as them.
func (s *Server) authorizePage(w http.ResponseWriter, r *http.Request) {
	name := ""
	if u := loggedIn(r); u != nil {
		name = u.Name
	}
	pageHeaders(w.Header())
	writePage(w, authorizeHTML, map[string]string{"user": name, "path": authorizePath, "challenge": r.URL.Query().Get("code_challenge")})
}

// loginToken is what the caller's login is worth to a command line.
func (s *Server) loginToken(r *http.Request) (string, error) {
	gate := s.Gate
	if gate == nil {
		gate = &auth.Gate{} // nobody is logged in: it has cookies to pack only
	}
	return gate.LoginToken(r, callerOf(r))
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.AuthorizeBody](s, w, r)
	if !ok {
		return
	}
	token, err := s.loginToken(r)
	if err == nil {
		err = auth.Authorize(r.Context(), s.Store, b.CodeChallenge, token)
	}
	if errors.Is(err, auth.ErrChallenge) {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.answered(w, r, map[string]string{"status": "authorized"}, err)
}

// pollLogin hands the login to the command line that began it.
func (s *Server) pollLogin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if err := s.Gate.Lookup(r); err != nil {
		s.failed(w, r, err)
		return
	}
	token, err := auth.Poll(r.Context(), s.Store, r.URL.Query().Get("code_verifier"))
	if err != nil {
		s.Gate.LookupFailed(r)
	}
	switch {
	case errors.Is(err, auth.ErrChallenge):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, state.ErrNotFound):
		fail(w, http.StatusNotFound, "Nobody has agreed to this login yet.")
	default:
		s.answered(w, r, map[string]string{"token": token}, err)
	}
}

const tokenHTML = `<!doctype html>
<meta charset="utf-8"><title>Log in to sky</title>` + pageStyle + `
<h1>Log in to sky</h1>
<p id="note">Copy this text into the command line that asks for it. It lets whoever has it act as you<span id="you" hidden>, <b id="user"></b></span>.</p>
<textarea id="token" rows="8" readonly></textarea>
<p><button id="send" hidden>Send it to the command line</button></p>
` + dataHere + `
<script>
document.getElementById("token").value = data.token;
if (data.user) { document.getElementById("user").textContent = data.user; document.getElementById("you").hidden = false; }
document.getElementById("send").hidden = !data.port;
document.getElementById("send").onclick = async () => {
  const note = document.getElementById("note");
  try {
    await fetch("http://localhost:" + data.port, {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: document.getElementById("token").value});
    note.textContent = "Done. You can close this page.";
  } catch (e) { note.textContent = "The command line cannot be reached; copy the text: " + e; }
};
</script>
`

// tokenPage shows the login as text, for command lines that cannot poll, and
// hands it to one that listens on this machine.
func (s *Server) tokenPage(w http.ResponseWriter, r *http.Request) {
	port := 0
	if text := r.URL.Query().Get("local_port"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 65535 {
			fail(w, http.StatusBadRequest, "local_port must be a port.")
			return
		}
		port = n
	}
	token, err := s.loginToken(r)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	name := ""
	if u := loggedIn(r); u != nil {
		name = u.Name
	}
	pageHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if port != 0 {
		w.Header().Set("Content-Security-Policy", pagePolicy+"; connect-src 'self' http://localhost:"+strconv.Itoa(port))
	}
	writePage(w, tokenHTML, map[string]any{"user": name, "token": token, "port": port})
}
