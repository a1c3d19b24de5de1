package server

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
)

const day = 24 * time.Hour

// maxTokenDays is about as long as a time can be.
const maxTokenDays = 36500

func unixOr(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	at := t.Unix()
	return &at
}

// tokens lists the tokens that the caller may manage: administrators all, users
// those that they made, viewers none.
func (s *Server) tokens(w http.ResponseWriter, r *http.Request) {
	creator := ""
	if u := limited(r); u != nil {
		creator = u.ID
		if u.Role == "viewer" {
			writeJSON(w, http.StatusOK, []api.ServiceToken{})
			return
		}
	}
	list, err := s.Store.Tokens().List(r.Context(), creator)
	out := make([]api.ServiceToken, len(list))
	for i, k := range list {
		out[i] = api.ServiceToken{
			TokenID: k.ID, TokenName: k.Name, CreatedAt: k.CreatedAt.Unix(), LastUsedAt: unixOr(k.UsedAt), ExpiresAt: unixOr(k.ExpiresAt),
			CreatorUserHash: k.CreatorID, CreatorName: k.CreatorName,
			ServiceAccountUserID: k.AccountID, ServiceAccountName: k.Account.Name, ServiceAccountRoles: []string{k.Account.Role},
		}
	}
	s.answered(w, r, out, err)
}

// errNoLogins refuses what needs somebody who has logged in, where nobody can.
var errNoLogins = refuse(http.StatusBadRequest, "This server has no logins, so it has no tokens either: whoever reaches it may call it, and programs need none. "+
	"With ENABLE_SERVICE_ACCOUNTS=true and a kind of login, such as ENABLE_BASIC_AUTH=true, it has both (docs/administrators.md).")

// owner is the caller of a call about tokens, which somebody must answer for.
func (s *Server) owner(r *http.Request) (state.User, error) {
	if u := loggedIn(r); u != nil {
		return *u, nil
	}
	if !s.Gate.Options().Demanded() {
		return state.User{}, errNoLogins
	}
	return state.User{}, refuse(http.StatusUnauthorized, "Nobody is logged in, so nobody would own the token.")
}

// ownToken is a token that the caller may manage.
func (s *Server) ownToken(r *http.Request, id string) (state.NamedToken, state.User, error) {
	u, err := s.owner(r)
	if err != nil {
		return state.NamedToken{}, u, err
	}
	k, err := s.Store.Tokens().Get(r.Context(), id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return k, u, refuse(http.StatusNotFound, "There is no token %s.", quoted(id))
	case err == nil && u.Role != "admin" && k.CreatorID != u.ID:
		return k, u, refuse(http.StatusForbidden, "This token is another user's.")
	}
	return k, u, err
}

// lifetime is when a token of so many days ends.
func lifetime(now time.Time, days int) (time.Time, error) {
	switch {
	case days < 0 || days > maxTokenDays:
		return time.Time{}, refuse(http.StatusBadRequest, "expires_in_days must be between 0 (never) and %d.", maxTokenDays)
	case days == 0:
		return time.Time{}, nil
	}
	return now.Add(time.Duration(days) * day).Truncate(time.Second), nil
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.TokenCreateBody](s, w, r)
	if !ok {
		return
	}
	out, err := s.newToken(r, b)
	s.answered(w, r, out, err)
}

// newToken makes a service account that may do what its maker may.
func (s *Server) newToken(r *http.Request, b api.TokenCreateBody) (*api.NewToken, error) {
	u, err := s.owner(r)
	if err != nil {
		return nil, err
	}
	if b.TokenName = strings.TrimSpace(b.TokenName); auth.CheckName(b.TokenName) != nil {
		return nil, refuse(http.StatusBadRequest, "The token needs a name of at most 254 bytes, without colons.")
	}
	now, days := s.Store.Now(), 0
	if b.ExpiresInDays != nil {
		days = *b.ExpiresInDays
	}
	k := state.Token{ID: uuid.NewString(), Name: b.TokenName, AccountID: auth.NewAccountID(), CreatorID: u.ID, CreatedAt: now}
	if k.ExpiresAt, err = lifetime(now, days); err != nil {
		return nil, err
	}
	text, err := s.mint(&k)
	if err != nil {
		return nil, err
	}
	account := state.User{ID: k.AccountID, Name: k.Name, Type: "sa", Role: u.Role, CreatedAt: now}
	if err := s.Store.Tokens().Create(r.Context(), k, account); err != nil {
		return nil, err
	}
	return newTokenAnswer(k, text), nil
}

// mint writes the text of a token and keeps its hash.
func (s *Server) mint(k *state.Token) (string, error) {
	text, err := s.Gate.MintToken(k.AccountID, k.ID, k.ExpiresAt)
	if errors.Is(err, auth.ErrNoTokens) {
		return "", refuse(http.StatusBadRequest, "%v", err)
	}
	k.Hash = auth.TokenHash(text)
	return text, err
}

func newTokenAnswer(k state.Token, text string) *api.NewToken {
	return &api.NewToken{
		TokenID: k.ID, TokenName: k.Name, Token: text, ExpiresAt: unixOr(k.ExpiresAt),
		ServiceAccountUserID: k.AccountID, CreatorUserID: k.CreatorID,
		Message: "Keep the token now: it is not shown again.",
	}
}

func (s *Server) deleteToken(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.TokenBody](s, w, r)
	if !ok {
		return
	}
	k, _, err := s.ownToken(r, b.TokenID)
	if err == nil {
		err = s.Store.Tokens().Delete(r.Context(), k.ID)
	}
	s.answered(w, r, api.Message{Message: "The token is revoked."}, err)
}

func (s *Server) tokenRole(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.TokenBody](s, w, r)
	if !ok {
		return
	}
	k, _, err := s.ownToken(r, b.TokenID)
	s.answered(w, r, api.TokenRoles{TokenID: k.ID, ServiceAccountUserID: k.AccountID, Roles: []string{k.Account.Role}}, err)
}

func (s *Server) updateTokenRole(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.TokenRoleBody](s, w, r)
	if !ok {
		return
	}
	k, u, err := s.ownToken(r, b.TokenID)
	if err == nil {
		err = checkRole(b.Role)
	}
	if err == nil && roles[b.Role] > roles[u.Role] {
		err = refuse(http.StatusForbidden, "A service account cannot be given a role above your own.")
	}
	if err == nil {
		err = s.Store.Users().SetRole(r.Context(), k.AccountID, b.Role)
	}
	s.answered(w, r, api.TokenRoleChanged{
		Message: "The role is changed.", TokenID: k.ID, ServiceAccountUserID: k.AccountID, NewRole: b.Role,
	}, err)
}

// rotateToken puts a new text in the place of the old one, which is worth
// nothing from then on. Unless asked otherwise, the new one ends when the old one would
// have; one that has ended gets 30 days.
func (s *Server) rotateToken(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.TokenRotateBody](s, w, r)
	if !ok {
		return
	}
	out, err := s.rotated(r, b)
	s.answered(w, r, out, err)
}

func (s *Server) rotated(r *http.Request, b api.TokenRotateBody) (*api.NewToken, error) {
	k, _, err := s.ownToken(r, b.TokenID)
	if err != nil {
		return nil, err
	}
	now := s.Store.Now()
	switch {
	case b.ExpiresInDays != nil:
		k.ExpiresAt, err = lifetime(now, *b.ExpiresInDays)
	case k.Expired(now):
		k.ExpiresAt, err = lifetime(now, 30)
	}
	if err != nil {
		return nil, err
	}
	text, err := s.mint(&k.Token)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Tokens().Rotate(r.Context(), k.ID, k.Hash, k.ExpiresAt); err != nil {
		return nil, err
	}
	return newTokenAnswer(k.Token, text), nil
}
