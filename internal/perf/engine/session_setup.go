package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// connectUnlessFinished is connect, but it ends with ErrFinished when s.finish is closed: an
// interrupt does not wait for a server that is silent.
func (s *session) connectUnlessFinished(ctx context.Context, l link, m *meeting) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.finish:
			cancel(ErrFinished)
		case <-ctx.Done():
		}
	}()
	err := s.connect(ctx, l, m)
	if err != nil && context.Cause(ctx) == ErrFinished {
		return s.ctl.fail(ErrFinished)
	}
	return err
}

// connect sets up the connections on the client. If m is not nil, the ends connect by an exchange
// of addresses: the server sends its address first.
func (s *session) connect(ctx context.Context, l link, m *meeting) error {
	ready, err := s.ctl.expect(ctx.Done(), msgReady)
	if err != nil {
		return err
	}
	if ready.Memory == nil || m == nil && !ready.Addr.IsValid() {
		return errors.New("the server's ready message lacks its address or memory")
	}
	l.setRemote(*ready.Memory)
	mem := l.memory()
	connected := message{Kind: msgConnected, Memory: &mem}
	if m != nil {
		connected.Place = &m.own
		err = m.meet(ready.Place)
	} else {
		setup, cancel := context.WithTimeout(ctx, setupTime)
		defer cancel()
		err = l.connect(setup, fromHere(ready.Addr, s.ctl.localAddr()), ready.Token)
		if err != nil {
			err = s.because(ctx, err)
		}
	}
	if err == nil && s.start != nil {
		err = s.start(ctx)
	}
	if err == nil {
		err = s.ctl.send(connected)
	}
	if err == nil { // when the server is connected, too
		_, err = s.ctl.expect(ctx.Done(), msgGo)
	}
	return err
}

// reasonTime is how long a client that could not connect waits for the server's reason.
const reasonTime = time.Second

// because returns the server's error if the server reports one within reasonTime: it has failed and
// ended the connections. Otherwise because returns err.
func (s *session) because(ctx context.Context, err error) error {
	var server *peerError
	if _, e := s.ctl.expectFor(reasonTime, ctx.Done()); errors.As(e, &server) {
		return server
	}
	return err
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

// accept sets up the connections on the server. If m is not nil, the ends connect by an exchange of
// addresses.
func (s *session) accept(ctx context.Context, l link, m *meeting) (err error) {
	mem := l.memory()
	ready := message{Kind: msgReady, Memory: &mem}
	if m != nil {
		ready.Place = &m.own
	} else {
		ready.Token = rand.Uint64()
		if ready.Addr, err = l.listen(); err != nil {
			return err
		}
	}
	if err := s.ctl.send(ready); err != nil {
		return err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	setup, cancel := context.WithTimeoutCause(ctx, setupTime,
		fmt.Errorf("the client has not connected within %v", setupTime))
	defer cancel()
	// A client may give up even after it has announced that it is connected. Then it sends an error
	// or closes the control connection.
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
	if m == nil {
		if err = l.accept(setup, ready.Token); err != nil {
			giveUp(err)
		}
	}
	if e := <-said; e != nil {
		return e
	}
	switch {
	case err != nil:
		return err
	case connected.Memory == nil:
		return errors.New("the client's connected message lacks its memory")
	case m != nil:
		if err := m.meet(connected.Place); err != nil {
			return err
		}
	}
	l.setRemote(*connected.Memory)
	return s.ctl.send(message{Kind: msgGo})
}

// ErrFinished is the error of Client.Run if Client.Finish ended the plan early.
var ErrFinished = errors.New("ended early, by an interrupt: results up to then are kept")
