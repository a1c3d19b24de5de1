package trace

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
)

func TestLinesCarryTheRequest(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	ctx := WithRequest(t.Context(), "4f1c")
	log.InfoContext(ctx, "one", "a", 1)
	log.InfoContext(t.Context(), "none")
	log.Info("no context")
	log.With("b", 2).InfoContext(context.WithoutCancel(ctx), "attributes")
	log.WithGroup("g").With("c", 3).InfoContext(ctx, "group", "d", 4)
	log.With("b", 2).WithGroup("g").WithGroup("").WithGroup("h").InfoContext(WithRequest(ctx, "inner"), "groups", "d", 4)
	want := `level=INFO msg=one request=4f1c a=1
level=INFO msg=none
level=INFO msg="no context"
level=INFO msg=attributes b=2 request=4f1c
level=INFO msg=group request=4f1c g.c=3 g.d=4
level=INFO msg=groups b=2 request=inner g.h.d=4
`
	if b.String() != want {
		t.Errorf("wrote\n%swant\n%s", &b, want)
	}
}
