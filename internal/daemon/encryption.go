package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/state"
)

// Variables that say where the keys are that encrypt secrets in the database.
// They are read at the start and then removed from the environment of what the
// server starts.
const (
	envKey     = "SKY_ENCRYPTION_KEY"         // the keys themselves
	envKeyFile = "SKY_ENCRYPTION_KEY_FILE"    // a file with keys, which the server only reads
	envKMS     = "SKY_ENCRYPTION_KMS_COMMAND" // a command that wraps and unwraps keys, see [envelope.KMS]
	// envAcceptLoss names keys that are lost for good, so that the server starts
	// without what they encrypted.
	envAcceptLoss = "SKY_ENCRYPTION_ACCEPT_LOSS"
)

// keySources is where this server finds keys.
type keySources struct {
	own      string // the file that the server makes when it is told about nothing else
	keys     string
	file     string
	kms      string
	accepted string
}

func newKeySources(dir string) keySources {
	take := func(name string) string {
		v := os.Getenv(name)
		os.Unsetenv(name)
		return v
	}
	return keySources{own: filepath.Join(dir, envelope.FileName), keys: take(envKey), file: take(envKeyFile), kms: take(envKMS), accepted: take(envAcceptLoss)}
}

// heldKey is a key that this server has.
type heldKey struct {
	envelope.Key
	source string
}

// gather is the keys that this server has. The first is the one that the
// administrator wants to be current; false: that is none of them. A key management
// service is asked only for keys that are not in the ring, which may be nil.
func (k keySources) gather(ctx context.Context, record []state.EncryptionKey, ring *envelope.Ring) (held []heldKey, wanted bool, err error) {
	add := func(source string, keys ...envelope.Key) {
		for _, key := range keys {
			if !slices.ContainsFunc(held, func(h heldKey) bool { return h.ID() == key.ID() }) {
				held = append(held, heldKey{key, source})
			}
		}
	}
	if k.kms != "" {
		for _, r := range record {
			if len(r.Wrapped) == 0 || !r.RetiredAt.IsZero() {
				continue
			}
			key, known := envelope.Key{}, false
			if ring != nil {
				key, known = ring.Key(r.ID)
			}
			if !known {
				if key, err = (envelope.KMS{Command: k.kms}).Unwrap(ctx, r.Wrapped); err != nil {
					return nil, false, err
				}
			}
			add(r.Source, key)
		}
		wanted = len(held) > 0
	}
	if k.keys != "" {
		keys, err := envelope.ParseKeys(k.keys)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", envKey, err)
		}
		add("the variable "+envKey, keys...)
	}
	if k.file != "" {
		keys, err := envelope.ReadFile(k.file, true)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", envKeyFile, err)
		}
		add(k.file, keys...)
	}
	keys, err := envelope.ReadFile(k.own, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	add(k.own, keys...)
	return held, wanted || k.kms == "" && len(held) > 0, nil
}

// keyChoice is what is to be done about keys.
type keyChoice struct {
	current envelope.ID // ""; make one
	add     bool        // it is new to the database
	missing []state.EncryptionKey
}

// chooseKey decides which key is current. A key that the administrator put first
// and that the database does not know takes over; else the one stays that the
// database says. Keys that may still be needed and are not held are missing. It
// is pure.
func chooseKey(record []state.EncryptionKey, held []heldKey, wanted bool, lost func(envelope.ID) bool) keyChoice {
	var c keyChoice
	has := func(id envelope.ID) bool {
		return slices.ContainsFunc(held, func(h heldKey) bool { return h.ID() == id })
	}
	for _, r := range record {
		if r.RetiredAt.IsZero() && !has(r.ID) && !lost(r.ID) {
			c.missing = append(c.missing, r)
		}
	}
	known := func(id envelope.ID) bool {
		return slices.ContainsFunc(record, func(r state.EncryptionKey) bool { return r.ID == id })
	}
	switch {
	case len(c.missing) > 0:
	case wanted && !known(held[0].ID()):
		c.current, c.add = held[0].ID(), true
	case len(record) > 0 && has(record[0].ID):
		c.current = record[0].ID
	case wanted: // the current one is lost: another takes over
		for _, h := range held {
			if !known(h.ID()) {
				c.current = h.ID()
			}
		}
		c.add = true
	default:
		c.add = true
	}
	return c
}

// MissingKeyError refuses to start without a key that secrets need.
type MissingKeyError struct {
	Missing []state.EncryptionKey
	Held    []heldKey
	Own     string
}

func (e *MissingKeyError) Error() string {
	k := e.Missing[0]
	var b strings.Builder
	fmt.Fprintf(&b, "the secrets in the database are encrypted with key %s, which this server does not have", k.ID)
	if len(e.Held) > 0 {
		fmt.Fprintf(&b, " (it has key %s from %s)", e.Held[0].ID(), e.Held[0].source)
	}
	fmt.Fprintf(&b, ". The key was first used on %s and came from %s.\n", k.MadeAt.UTC().Format(time.DateOnly), k.Source)
	switch {
	case len(k.Wrapped) > 0:
		fmt.Fprintf(&b, "It is in the database, wrapped: set %s to the command that unwraps it.\n", envKMS)
	case filepath.IsAbs(k.Source):
		fmt.Fprintf(&b, "Bring the key back: copy that file, or a backup of it, to %s (mode 600), or set %s or %s.\n", e.Own, envKey, envKeyFile)
	default:
		fmt.Fprintf(&b, "Bring the key back: set %s or %s as it was, or write the key into %s (mode 600).\n", envKey, envKeyFile, e.Own)
	}
	b.WriteString("Servers that share a database share the key.\n")
	fmt.Fprintf(&b, "If the key is lost for good, start once with %s=%s. What it encrypted is lost then: requests that have not ended fail, managed jobs and schedules that have not ended are cancelled, clusters that exist can only be ended (sky down), and everybody logs in again.", envAcceptLoss, k.ID)
	return b.String()
}

// unlock finds the keys of the database, makes the first one, and lets the store
// use them.
func (d *daemon) unlock(ctx context.Context) error {
	for {
		ring, err := d.findKeys(ctx)
		if errors.Is(err, state.ErrConflict) { // another server was first
			continue
		}
		if err != nil {
			return err
		}
		d.ring = ring
		d.store.Unlock(ring)
		break
	}
	if d.keySources.accepted != "" {
		return d.giveUpSecrets(ctx)
	}
	return nil
}

func (d *daemon) findKeys(ctx context.Context) (*envelope.Ring, error) {
	k := d.keySources
	record, err := d.store.EncryptionKeys().List(ctx)
	if err != nil {
		return nil, err
	}
	held, wanted, err := k.gather(ctx, record, d.ring)
	if err != nil {
		return nil, err
	}
	marker := filepath.Join(d.dir, envelope.RotateMarker)
	if _, err := os.Stat(marker); err == nil && k.kms != "" && len(record) > 0 {
		if c := chooseKey(record, held, false, k.lost); len(c.missing) == 0 {
			ring, err := d.makeKey(ctx, record, held)
			if err == nil { // else it is asked for again
				err = os.Remove(marker)
			}
			return ring, err
		}
	}
	c := chooseKey(record, held, wanted, k.lost)
	if len(c.missing) > 0 {
		return nil, &MissingKeyError{Missing: c.missing, Held: held, Own: k.own}
	}
	if c.current == "" {
		return d.makeKey(ctx, record, held)
	}
	i := slices.IndexFunc(held, func(h heldKey) bool { return h.ID() == c.current })
	if c.add {
		if err := d.addKey(ctx, record, held[i], nil); err != nil {
			return nil, err
		}
	}
	return ringOf(held[i].Key, held), nil
}

// makeKey makes a key and makes it the current one.
func (d *daemon) makeKey(ctx context.Context, record []state.EncryptionKey, held []heldKey) (*envelope.Ring, error) {
	k := d.keySources
	var wrapped []byte
	made := heldKey{source: "the key management service"}
	if k.kms != "" {
		made.Key = envelope.NewKey()
		var err error
		if wrapped, err = (envelope.KMS{Command: k.kms}).Wrap(ctx, made.Key); err != nil {
			return nil, err
		}
		back, err := envelope.KMS{Command: k.kms}.Unwrap(ctx, wrapped)
		if err != nil {
			return nil, err
		}
		if back.ID() != made.ID() {
			return nil, fmt.Errorf("%s: \"unwrap\" does not give back what \"wrap\" was given", envKMS)
		}
	} else {
		var err error
		made.Key, err = envelope.CreateFile(k.own)
		if errors.Is(err, fs.ErrExist) { // what is in it opens what is older
			made.Key, _, err = envelope.AddToFile(ctx, k.own)
		}
		if err != nil {
			return nil, err
		}
		made.source = k.own
	}
	if err := d.addKey(ctx, record, made, wrapped); err != nil {
		return nil, err
	}
	return ringOf(made.Key, held), nil
}

// addKey makes a key the current one of the database.
func (d *daemon) addKey(ctx context.Context, record []state.EncryptionKey, k heldKey, wrapped []byte) error {
	next := 1
	if len(record) > 0 {
		next = record[0].Number + 1
	}
	source := k.source
	if host, err := os.Hostname(); err == nil && filepath.IsAbs(source) {
		source += " on " + host
	}
	err := d.store.EncryptionKeys().Add(ctx, state.EncryptionKey{Number: next, ID: k.ID(), Source: source, Wrapped: wrapped})
	if err == nil {
		d.log.InfoContext(ctx, "an encryption key is current from now on", "key", string(k.ID()), "source", source)
		if d.store.Shared() && wrapped == nil {
			d.log.WarnContext(ctx, "every server of this database needs the encryption key, and so does every backup", "key", string(k.ID()), "source", source)
		}
	}
	return err
}

func ringOf(current envelope.Key, held []heldKey) *envelope.Ring {
	r := envelope.NewRing(current)
	for _, h := range held {
		r.Add(h.Key)
	}
	return r
}

func (k keySources) lost(id envelope.ID) bool {
	return slices.Contains(strings.FieldsFunc(k.accepted, func(r rune) bool { return r == ',' || r == ' ' }), string(id))
}

// giveUpSecrets ends what needs secrets whose key is lost, as the administrator
// accepted.
func (d *daemon) giveUpSecrets(ctx context.Context) error {
	var at state.ResealMark
	for !at.Done {
		r, err := d.store.Reseal(ctx, &at)
		if err != nil {
			return err
		}
		var lost []envelope.Place
		if unknown, ok := errors.AsType[*envelope.UnknownKeyError](r.Err); ok && d.keySources.lost(unknown.ID) {
			lost = r.Lost
		}
		if err := d.store.GiveUp(ctx, lost, "The encryption key of this API server was lost, and with it the secrets that this needed. Submit it again."); err != nil {
			return err
		}
		for _, place := range lost {
			d.log.WarnContext(ctx, "a secret is lost with its encryption key", "table", place.Table, "row", place.Row, "column", place.Column)
		}
	}
	return nil
}

// Times of the loop that looks after encryption.
const (
	resealEvery = 10 * time.Second
	// resealSettled is how long after a key became current the other servers of the
	// database know of it.
	resealSettled = time.Minute
	resealPause   = 5 * time.Millisecond
)

// keepSealed encrypts what is in clear or encrypted with an older key, whenever
// there may be some, and takes over keys that the administrator added.
func (d *daemon) keepSealed(ctx context.Context) {
	told := ""
	for {
		if err := d.sealOnce(ctx); err != nil && ctx.Err() == nil {
			if err.Error() != told {
				d.log.ErrorContext(ctx, "not everything is encrypted with the current key", "err", err)
			}
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resealEvery):
		}
	}
}

func (d *daemon) sealOnce(ctx context.Context) error {
	ring, err := d.findKeys(ctx)
	if err != nil {
		return err
	}
	d.ring.Follow(ring) // also keys that other servers are about to use
	record, err := d.store.EncryptionKeys().List(ctx)
	if err != nil || len(record) == 0 || record[0].Complete {
		return err
	}
	settled := !d.store.Shared() || d.store.Now().Sub(record[0].MadeAt) > resealSettled
	d.oncePer(ctx, 2*resealEvery, "reseal", func(ctx context.Context) { err = d.reseal(ctx, record, settled) })
	return err
}

// reseal encrypts everything with the current key and, once nothing is left, says
// which keys are not needed any more.
func (d *daemon) reseal(ctx context.Context, record []state.EncryptionKey, settled bool) error {
	var at state.ResealMark
	var lost error
	changed := 0
	for !at.Done {
		r, err := d.store.Reseal(ctx, &at)
		if err != nil {
			return err
		}
		changed += r.Changed
		if r.Err != nil {
			lost = r.Err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(resealPause):
		}
	}
	if lost != nil || changed > 0 && d.store.Shared() || !settled {
		return lost // looked at again
	}
	if record[0].Number == 1 { // there may have been values in clear
		if err := d.store.ClearFree(ctx); err != nil {
			return err
		}
	}
	if err := d.store.EncryptionKeys().Finish(ctx, record[0].Number); err != nil {
		return err
	}
	for _, k := range record[1:] {
		if k.RetiredAt.IsZero() {
			d.log.InfoContext(ctx, "an encryption key is not needed any more, except for backups from before: it can be removed from where it is", "key", string(k.ID), "source", k.Source)
		}
	}
	return nil
}
