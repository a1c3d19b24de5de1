//go:build unix

package filesync

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// Serve is Receiver.Serve for a home folder.
func Serve(ctx context.Context, conn io.ReadWriter, home string) error {
	return Receiver{Home: home}.Serve(ctx, conn)
}

// Serve is the receiving end: it takes what one Send after another writes to
// conn until the end of the stream, which is no error. A sync that fails, on a full disk for instance, tells the
// sender why and is no error of Serve either; a broken connection is. To be
// cut short, conn must be a net.Conn or an io.Closer.
func (to Receiver) Serve(ctx context.Context, conn io.ReadWriter) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		if err := awaitSync(ctx, conn, in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := serveOne(ctx, conn, in, to); err != nil {
			return fmt.Errorf("receiving files: %w", err)
		}
	}
}

// awaitSync waits for the first byte of a sync, for as long as it takes.
func awaitSync(ctx context.Context, conn io.ReadWriter, in *bufio.Reader) error {
	quiet := &link{conn: conn}
	stop := context.AfterFunc(ctx, quiet.interrupt)
	_, err := in.Peek(1)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// serveOne receives one sync. An error means that the connection is of no
// more use.
func serveOne(ctx context.Context, conn io.ReadWriter, in *bufio.Reader, to Receiver) error {
	l, ctx := newLink(ctx, conn, in, defaultTimeout)
	r := &receiver{link: l, home: to.Home, place: to.Place, plan: newPlan(),
		hellos: make(chan hello, 1), blocks: make(chan *block, 64), files: make(chan []byte, 4)}
	err := r.run(ctx)
	if broken := l.close(ctx); broken != nil {
		return broken
	}
	return err
}
