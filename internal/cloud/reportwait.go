package cloud

import "context"

type waitsKey struct{}

// WithWaitReports makes told hear what a provider waits for in a call under the
// returned context. It may be called concurrently and must be quick.
func WithWaitReports(ctx context.Context, told func(what string)) context.Context {
	return context.WithValue(ctx, waitsKey{}, told)
}

// ReportWait tells whoever wants to know what a provider waits for just now, as in
// "waiting for " + what. Saying the same again costs next to nothing.
func ReportWait(ctx context.Context, what string) {
	if told, ok := ctx.Value(waitsKey{}).(func(string)); ok {
		told(what)
	}
}

type noteKey struct{}

// WithNotes lets hear have what providers want people to know.
func WithNotes(ctx context.Context, hear func(text string)) context.Context {
	return context.WithValue(ctx, noteKey{}, hear)
}

// Note tells people something about what is being done, in a sentence.
func Note(ctx context.Context, text string) {
	if hear, ok := ctx.Value(noteKey{}).(func(string)); ok {
		hear(text)
	}
}
