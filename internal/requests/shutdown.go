package requests

import (
	"context"
	"fmt"
)

// Shutdown stops the engine: nothing new is taken, log requests and long ones
// are asked to stop (the cause is [ErrShutdown]; what they leave is resumed by
// the next life or another server), and short ones may finish until ctx ends,
// after which they are stopped too. Streams end with the line that makes
// clients ask again. An error says how many functions have not returned.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	for _, r := range e.runs {
		if r.kind != short {
			r.cancel(ErrShutdown)
		}
	}
	e.mu.Unlock()

	returned := make(chan struct{})
	go func() {
		e.running.Wait()
		close(returned)
	}()
	var err error
	select {
	case <-returned:
	case <-ctx.Done():
		err = e.stillRunning()
	}
	e.stop()
	e.loops.Wait()
	if err == nil {
		// Everything has returned: whoever looks next may resume at once.
		err = e.store.Requests().Release(context.WithoutCancel(ctx), e.o.ServerID)
	}
	return err
}

// stop ends the loops, the streams and whatever still runs.
func (e *Engine) stop() {
	e.mu.Lock()
	e.closed = true
	for _, r := range e.runs {
		r.cancel(ErrShutdown)
	}
	e.halt()
	e.mu.Unlock()
	e.shut.Do(func() { close(e.closing) })
}

func (e *Engine) stillRunning() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.runs) == 0 {
		return nil
	}
	return fmt.Errorf("%d requests have not stopped in time; they are resumed at the next start", len(e.runs))
}
