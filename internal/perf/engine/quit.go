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
	if err := k.send(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Version: version}); err != nil {
		return err
	}
	k.live(nil)
	if _, err := k.expect(ctx.Done(), msgWelcome); err != nil {
		return err
	}
	if err := k.send(message{Kind: msgQuit}); err != nil {
		return err
	}
	_, err := k.expect(ctx.Done(), msgBye)
	return err
}
