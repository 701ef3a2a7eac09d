package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/godat/godat/udat"
)

// longEnd is one end of a udat connection with messages of many packets, as rdmanet may also send
// them. Such a connection shows how the device handles long messages.
type longEnd struct {
	ia   *udat.IA
	evd  *udat.EVD
	ep   *udat.EP
	mem  *memory // slots of size bytes
	size int
}

const (
	longSlots    = 4 // receives of one end
	longInFlight = 2 // Sends in flight at the other end
	longLink     = 7 // the link in the arguments of fill
)

func openLong(device string, size int) (*longEnd, error) {
	l := &longEnd{size: size}
	var err error
	if l.ia, err = udat.Open(device); err != nil {
		return nil, err
	}
	pz, err := l.ia.CreatePZ()
	if err == nil {
		l.evd, err = l.ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil)
	}
	if err == nil {
		attr := &udat.EPAttr{MaxRequestDTOs: 2 * longInFlight, MaxRecvDTOs: longSlots}
		l.ep, err = l.ia.CreateEP(pz, l.evd, l.evd, l.evd, attr)
	}
	if err == nil {
		l.mem, err = newMemory(l.ia, pz, "long messages", longSlots*size, udat.PrivLocalRead|udat.PrivLocalWrite)
	}
	if err != nil {
		l.ia.Close(udat.CloseAbrupt)
	}
	return l, err
}

func (l *longEnd) slot(n uint64) []byte {
	at := int(n%longSlots) * l.size
	return l.mem.buf[at : at+l.size]
}

func (l *longEnd) iov(n uint64) []udat.LMRTriplet { return l.mem.iov(int(n%longSlots)*l.size, l.size) }

func (l *longEnd) receive(n uint64) error {
	return l.ep.PostRecv(l.iov(n), udat.Cookie(n), udat.CompletionDefault)
}

// serveLong runs the other end. It receives messages until the connection ends, and then reports
// how many have come and how the connection has ended. Its arguments are the device and the size of
// a message.
func serveLong(args []string, out io.Writer) error {
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	l, err := openLong(args[0], size)
	if err != nil {
		return err
	}
	defer l.ia.Close(udat.CloseAbrupt)
	qual, psp, err := l.ia.CreatePSPAny(l.evd, udat.PSPConsumer)
	if err != nil {
		return err
	}
	defer psp.Free()
	for n := range uint64(longSlots) {
		if err := l.receive(n); err != nil {
			return err
		}
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(netip.AddrPortFrom(l.ia.Addr(), uint16(qual))); err != nil {
		return err
	}
	f := flowed{}
	want := make([]byte, size)
	for f.Error == "" {
		ev, _, err := l.evd.Wait(5*time.Minute, 1)
		switch {
		case err != nil:
			f.Error = err.Error()
		case ev.Number == udat.EventConnectionRequest:
			err = ev.CR.Accept(l.ep, nil)
		case ev.Number == udat.EventDTOCompletion && ev.Status == udat.DTOSuccess:
			n := uint64(f.Taken)
			if fill(want, longLink, n); uint64(ev.Cookie) != n || string(l.slot(n)) != string(want) {
				f.Error = fmt.Sprintf("message %d is wrong", n)
			}
			f.Taken++
			err = l.receive(n + longSlots)
		case slices.Contains(ended, ev.Number):
			f.Error = ev.Number.String()
		}
		if err != nil && f.Error == "" && !errors.Is(err, udat.ErrInvalidState) { // after the end a post is refused
			f.Error = err.Error()
		}
	}
	return encoder.Encode(f)
}

// longMessages returns the function of a scenario: it sends n messages of one size over a network
// that netem disturbs. If mayBreak is true, the connection may break. Then both ends must get an
// event, and each message whose Send has completed must have arrived.
func longMessages(how string, size int, n uint64, mayBreak bool) func(*round) error {
	return func(r *round) error {
		p := &partner{role: "long messages", ended: make(chan error, 1)}
		defer p.close()
		if err := p.start(r.at, []string{r.device, strconv.Itoa(size)}); err != nil {
			return err
		}
		var to netip.AddrPort
		if err := p.answers.Decode(&to); err != nil {
			return err
		}
		l, err := openLong(r.device, size)
		if err != nil {
			return err
		}
		defer l.ia.Close(udat.CloseAbrupt)
		err = l.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), patience, nil, udat.QoSBestEffort, udat.ConnectDefault)
		if err != nil {
			return err
		}
		if ev, _, err := l.evd.Wait(patience, 1); err != nil || ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("%v (%v) instead of ESTABLISHED", ev.Number, err)
		}
		reset, err := r.spoil(how)
		if err != nil {
			return err
		}
		done, end, err := l.send(n)
		if err := errors.Join(err, reset()); err != nil {
			return fmt.Errorf("after %d of %d messages: %w", done, n, err)
		}
		r.began = time.Now()
		if end == 0 {
			if err := l.ep.Disconnect(udat.CloseGraceful); err != nil {
				return err
			}
		}
		there, err := p.answer()
		if err != nil {
			return err
		}
		broken := end != 0 || there.Error != udat.EventConnectionDisconnected.String()
		if uint64(there.Taken) < done || uint64(there.Taken) > n || broken && !mayBreak || there.Error == "" {
			return fmt.Errorf("%d of %d messages have completed, the end is %v; the other end has taken %d: %s", done, n, end,
				there.Taken, there.Error)
		}
		return l.mem.check()
	}
}

// send sends n messages. If the connection ends earlier, it returns the event that reports the end,
// and the number of messages that had completed.
func (l *longEnd) send(n uint64) (done uint64, end udat.EventNumber, err error) {
	failed := false
	for sent := uint64(0); done < n; {
		for !failed && sent < min(n, done+longInFlight) {
			fill(l.slot(sent), longLink, sent)
			if err := l.ep.PostSend(l.iov(sent), udat.Cookie(sent), udat.CompletionDefault); err != nil {
				failed = true // the connection has ended
				break
			}
			sent++
		}
		ev, _, err := l.evd.Wait(5*time.Minute, 1)
		switch {
		case err != nil:
			return done, 0, err
		case ev.Number == udat.EventDTOCompletion && ev.Status == udat.DTOSuccess:
			done++
		case ev.Number == udat.EventDTOCompletion:
			failed = true
		case slices.Contains(ended, ev.Number):
			return done, ev.Number, nil
		default:
			return done, 0, fmt.Errorf("event %v", ev.Number)
		}
	}
	return done, 0, nil
}

func longRow(size int, n uint64, promise string, mayBreak bool) scenario {
	name := fmt.Sprintf("wire: loss of 5 %%, Sends of %d KiB by udat, without rdmanet", size>>10)
	s := rdmanetRow(name, promise, longMessages("loss 5%", size, n, mayBreak), map[string][2]int{"cable": {1, 4}})
	return s.slow()
}

var longRows = []scenario{
	longRow(8<<10, 128, "no event; each message arrives, once and unchanged", false),
	longRow(128<<10, 6, "what completed has arrived, once and unchanged; if the connection breaks, both ends see it",
		true),
}
