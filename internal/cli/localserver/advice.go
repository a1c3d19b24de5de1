package localserver

import (
	"context"
	"fmt"
	"os"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/proc"
)

// Advice says what to do about a server that does not answer, from what is known
// on this machine.
func (l *Local) Advice() string {
	in, err := sky.ReadInstance(l.Home)
	switch {
	case err == nil && in.PID > 0 && proc.Alive(in.PID, in.Start):
		return fmt.Sprintf("It runs as pid %d. If it hangs, end it with: sky api stop (the next command starts a new one; clusters and jobs go on). Its log: %s", in.PID, LogFile(l.Home))
	case l.listening():
		return fmt.Sprintf("Something else listens there.%s End it, or set SKY_API_PORT to a free port", l.holder())
	case err == nil:
		return fmt.Sprintf("It died (pid %d). Its log says why: %s. Start it with: sky api start", in.PID, LogFile(l.Home))
	}
	return "It was stopped. Start it with: sky api start"
}

// Revive starts the server again if it died. One that was stopped on purpose is
// left alone.
func (l *Local) Revive(ctx context.Context) error {
	in, err := sky.ReadInstance(l.Home)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil && proc.Alive(in.PID, in.Start) {
		return nil // it is about to listen
	}
	_, _, err = l.Ensure(ctx)
	return err
}
