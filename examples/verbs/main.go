// Command verbs sends a message with package cverbs alone: libibverbs and the RDMA connection
// manager, as a C program would use them. The server answers with the same bytes.
//
//	verbs ADDRESS               serve one client on a local address of an RDMA device; print the address
//	verbs ADDRESS:PORT TEXT     send the text to a server and print the answer
//
// In two shells, on a host whose RDMA device has the address 192.0.2.7:
//
//	$ go run ./examples/verbs 192.0.2.7
//	serving on 192.0.2.7:40733
//
//	$ go run ./examples/verbs 192.0.2.7:40733 hello
//	hello
package main

import (
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/godat/godat/cverbs"
)

const (
	size     = 4096 // bytes of the longest message
	patience = 10 * time.Second
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] != "-h":
		var local netip.Addr
		if local, err = netip.ParseAddr(os.Args[1]); err == nil {
			err = serve(local, func(at netip.AddrPort) { fmt.Println("serving on", at) })
		}
	case len(os.Args) == 3:
		var server netip.AddrPort
		var answer string
		if server, err = netip.ParseAddrPort(os.Args[1]); err == nil {
			if answer, err = call(server, os.Args[2]); err == nil {
				fmt.Println(answer)
			}
		}
	default:
		err = errors.New("usage: verbs ADDRESS, or verbs ADDRESS:PORT TEXT")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// want waits for the next event of the connection manager. It returns an error if the event is not
// of type t.
func want(events *cverbs.EventChannel, t cverbs.CMEventType) (cverbs.CMEvent, error) {
	ev, err := events.Get(time.Now().Add(patience))
	if err == nil && ev.Type != t {
		err = fmt.Errorf("got %v instead of %v: %v", ev.Type, t, ev.Err())
	}
	return ev, err
}

// conn is one end of a connection: a queue pair and the objects that it uses.
type conn struct {
	channel *cverbs.CompChannel
	pd      *cverbs.PD
	cq      *cverbs.CQ
	mr      *cverbs.MR
	qp      *cverbs.QP
	buf     []byte // size bytes for a received message, then size bytes for a message to send
}

// newConn creates a queue pair on the id and posts one receive. The address of the id must be
// resolved, so that its device is known.
func newConn(id *cverbs.CMID) (c conn, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	device, err := id.Context()
	if err != nil {
		return c, err
	}
	if c.channel, err = device.CreateCompChannel(); err != nil {
		return c, err
	}
	if c.pd, err = device.AllocPD(); err != nil {
		return c, err
	}
	if c.cq, err = device.CreateCQ(4, c.channel, 0); err != nil {
		return c, err
	}
	c.buf = make([]byte, 2*size)
	if c.mr, err = c.pd.RegMR(c.buf, cverbs.AccessLocalWrite); err != nil {
		return c, err
	}
	c.qp, err = id.CreateQP(c.pd, cverbs.QPInit{SendCQ: c.cq, RecvCQ: c.cq,
		Cap: cverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return c, err
	}
	_, err = c.qp.PostRecv([]cverbs.RecvWR{{ID: 1, NumSGE: 1}}, c.segment(0, size))
	return c, err
}

// close closes the objects in the reverse order of their creation, because an object in use cannot
// be closed. Close of a nil object does nothing.
func (c conn) close() {
	c.qp.Close()
	c.mr.Close()
	c.cq.Close()
	c.pd.Close()
	c.channel.Close()
}

// segment describes n bytes of the buffer at off.
func (c conn) segment(off, n int) []cverbs.SGE {
	return []cverbs.SGE{{Addr: c.mr.Addr() + uint64(off), Length: uint32(n), LKey: c.mr.LKey()}}
}

// send posts the Send of a message.
func (c conn) send(message []byte) error {
	n := copy(c.buf[size:], message)
	_, err := c.qp.PostSend([]cverbs.SendWR{{ID: 2, Opcode: cverbs.OpSend, Flags: cverbs.SendSignaled, NumSGE: 1}},
		c.segment(size, n))
	return err
}

// completion waits for the next completion. An armed queue reports only completions that come after
// it was armed. So this method polls the queue, arms it, polls it again for a completion that came
// in between, and then waits.
func (c conn) completion() (cverbs.WC, error) {
	wc := make([]cverbs.WC, 1)
	for until, armed := time.Now().Add(patience), false; ; {
		n, err := c.cq.Poll(wc)
		switch {
		case err != nil:
		case n == 1 && wc[0].Status != cverbs.WCSuccess:
			return wc[0], fmt.Errorf("work request %d: %v", wc[0].ID, wc[0].Status)
		case n == 1:
			return wc[0], nil
		case armed:
			_, err = c.channel.Wait(until)
			armed = false
		default:
			err = c.cq.Arm(false)
			armed = true
		}
		if err != nil {
			return wc[0], err
		}
	}
}

// serve sends the message of one client back to this client.
func serve(local netip.Addr, ready func(netip.AddrPort)) error {
	events, err := cverbs.CreateEventChannel()
	if err != nil {
		return err
	}
	defer events.Close()
	listener, err := events.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := listener.BindAddr(netip.AddrPortFrom(local, 0)); err != nil {
		return err
	}
	if err := listener.Listen(1); err != nil {
		return err
	}
	ready(listener.LocalAddr())
	request, err := want(events, cverbs.CMEventConnectRequest)
	if err != nil {
		return err
	}
	defer request.ID.Close()
	c, err := newConn(request.ID)
	if err != nil {
		return err
	}
	defer c.close()
	if err := request.ID.Accept(cverbs.ConnParam{RNRRetryCount: 7}); err != nil {
		return err
	}
	if _, err := want(events, cverbs.CMEventEstablished); err != nil {
		return err
	}
	received, err := c.completion()
	if err != nil {
		return err
	}
	if err := c.send(c.buf[:received.ByteLen]); err != nil {
		return err
	}
	if _, err := c.completion(); err != nil {
		return err
	}
	_, err = want(events, cverbs.CMEventDisconnected)
	return err
}

// call sends a text to the server and returns the answer.
func call(server netip.AddrPort, text string) (string, error) {
	if len(text) > size {
		return "", fmt.Errorf("the text has %d bytes, the limit is %d", len(text), size)
	}
	events, err := cverbs.CreateEventChannel()
	if err != nil {
		return "", err
	}
	defer events.Close()
	id, err := events.CreateID(cverbs.PortSpaceTCP)
	if err != nil {
		return "", err
	}
	defer id.Close()
	if err := id.ResolveAddr(netip.AddrPort{}, server, patience); err != nil {
		return "", err
	}
	if _, err := want(events, cverbs.CMEventAddrResolved); err != nil {
		return "", err
	}
	if err := id.ResolveRoute(patience); err != nil {
		return "", err
	}
	if _, err := want(events, cverbs.CMEventRouteResolved); err != nil {
		return "", err
	}
	c, err := newConn(id)
	if err != nil {
		return "", err
	}
	defer c.close()
	if err := id.Connect(cverbs.ConnParam{RetryCount: 7, RNRRetryCount: 7}); err != nil {
		return "", err
	}
	if _, err := want(events, cverbs.CMEventEstablished); err != nil {
		return "", err
	}
	if err := c.send([]byte(text)); err != nil {
		return "", err
	}
	for {
		done, err := c.completion()
		if err != nil {
			return "", err
		}
		if done.Opcode == cverbs.WCRecv {
			return string(c.buf[:done.ByteLen]), id.Disconnect()
		}
	}
}
