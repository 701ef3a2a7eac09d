package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// connect sets up the connections on the client.
func (s *session) connect(ctx context.Context, l link) error {
	ready, err := s.ctl.expect(ctx.Done(), msgReady)
	if err != nil {
		return err
	}
	if ready.Memory == nil || !ready.Addr.IsValid() {
		return errors.New("the server's ready message lacks its address or memory")
	}
	l.setRemote(*ready.Memory)
	setup, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if err := l.connect(setup, fromHere(ready.Addr, s.ctl.localAddr()), ready.Token); err != nil {
		return err
	}
	return s.connected(ctx, l, nil)
}

// fromHere returns the server's address in a form that this end can use. The argument local is this
// end's address. The zone of a link-local address is the name of an interface, and each host names
// its interfaces itself.
func fromHere(server netip.AddrPort, local netip.Addr) netip.AddrPort {
	if a := server.Addr(); a.IsLinkLocalUnicast() && local.Zone() != "" {
		return netip.AddrPortFrom(a.WithZone(local.Zone()), server.Port())
	}
	return server
}

// connected tells the server that this end is connected, and waits for the server's msgGo.
func (s *session) connected(ctx context.Context, l link, place *address) error {
	if s.start != nil {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	mem := l.memory()
	if err := s.ctl.send(message{Kind: msgConnected, Memory: &mem, Place: place}); err != nil {
		return err
	}
	_, err := s.ctl.expect(ctx.Done(), msgGo)
	return err
}

// accept sets up the connections on the server.
func (s *session) accept(ctx context.Context, l link) error {
	addr, err := l.listen()
	if err != nil {
		return err
	}
	mem, token := l.memory(), rand.Uint64()
	if err := s.ctl.send(message{Kind: msgReady, Addr: addr, Token: token, Memory: &mem}); err != nil {
		return err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	setup, cancel := context.WithTimeoutCause(ctx, setupTime,
		fmt.Errorf("the client has not connected within %v", setupTime))
	defer cancel()
	// Even after a client has announced that it is connected, it may give up. Then it sends an
	// error or closes the control connection.
	said := make(chan error, 1)
	var connected message
	go func() {
		var err error
		if connected, err = s.ctl.expect(setup.Done(), msgConnected); errors.Is(err, errStopped) {
			err = context.Cause(setup)
		}
		said <- err
		if err != nil {
			giveUp(err)
			return
		}
		select {
		case <-s.ctl.gone:
			giveUp(s.ctl.err)
		case <-setup.Done():
		}
	}()
	err = l.accept(setup, token)
	if err != nil {
		giveUp(err)
	}
	if e := <-said; e != nil {
		return e
	}
	if err != nil {
		return err
	}
	if connected.Memory == nil {
		return errors.New("the client's connected message lacks its memory")
	}
	l.setRemote(*connected.Memory)
	return s.ctl.send(message{Kind: msgGo})
}

// exchangeClient sets up the connections on the client with --connect exchange. The server sends
// its address first. It sends msgGo when both ends are connected.
func (s *session) exchangeClient(ctx context.Context, l *cverbsLink) error {
	ready, err := s.ctl.expect(ctx.Done(), msgReady)
	if err != nil {
		return err
	}
	if ready.Memory == nil {
		return errors.New("the server's ready message lacks its memory")
	}
	m, err := newMeeting(l, &s.chosen)
	if err != nil {
		return err
	}
	if err := m.meet(ready.Place); err != nil {
		return err
	}
	l.setRemote(*ready.Memory)
	return s.connected(ctx, l, &m.own)
}

// exchangeServer sets up the connections on the server with --connect exchange.
func (s *session) exchangeServer(ctx context.Context, l *cverbsLink) error {
	m, err := newMeeting(l, &s.chosen)
	if err != nil {
		return err
	}
	mem := l.memory()
	if err := s.ctl.send(message{Kind: msgReady, Place: &m.own, Memory: &mem}); err != nil {
		return err
	}
	connected, err := s.ctl.expectFor(setupTime, ctx.Done(), msgConnected)
	if errors.Is(err, errStopped) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if connected.Memory == nil {
		return errors.New("the client's connected message lacks its memory")
	}
	if err := m.meet(connected.Place); err != nil {
		return err
	}
	l.setRemote(*connected.Memory)
	return s.ctl.send(message{Kind: msgGo})
}
