package engine

import (
	"context"
	"net"
)

// Quit asks the server at the other end of the control connection conn to accept no more clients.
// It closes conn.
func Quit(ctx context.Context, conn net.Conn, version string) error {
	k := newControl(conn, "server")
	defer k.close()
	if _, err := k.greet(ctx, answerTime, message{Version: version}, nil); err != nil {
		return err
	}
	if err := k.send(message{Kind: msgQuit}); err != nil {
		return err
	}
	_, err := k.expect(ctx.Done(), msgBye)
	return err
}
