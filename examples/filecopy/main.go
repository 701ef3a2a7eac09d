// Command filecopy copies a file to another host by RDMA writes. After each write it sends a notice
// on the same connection. When the notice arrives, the data of the write is in the receiver's
// memory.
//
//	filecopy DEVICE FILE                   receive one file; print the address for the sender
//	filecopy DEVICE FILE ADDRESS:PORT      send the file
//
// The receiver has a ring of slots that the sender writes to. A write to a slot needs a credit. The
// sender starts with one credit for each slot, and the receiver returns a credit when it has stored
// a slot in the file.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/godat/godat/udat"
)

const (
	slot     = 64 << 10 // bytes
	slots    = 8
	notice   = 8 // size of a notice, which contains the number of bytes in the slot; 0 means the end of the file
	patience = 30 * time.Second
)

func main() {
	var err error
	switch len(os.Args) {
	case 3:
		err = receive(os.Args[1], os.Args[2], func(at netip.AddrPort) { fmt.Println("waiting at", at) })
	case 4:
		var to netip.AddrPort
		if to, err = netip.ParseAddrPort(os.Args[3]); err == nil {
			err = send(os.Args[1], os.Args[2], to)
		}
	default:
		err = errors.New("usage: filecopy DEVICE FILE [ADDRESS:PORT]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// end is one end of the connection. Its memory (mem) contains the slots, then a receive buffer for
// each slot (inbox), then a send buffer for each slot (outbox).
type end struct {
	ia     *udat.IA
	events *udat.EVD
	ep     *udat.EP
	mem    *udat.LMR
}

const (
	inbox  = slots * slot
	outbox = inbox + slots*notice
)

// open creates an end and posts one receive per slot. That is enough: at most one message per slot
// is in flight.
func open(device string, priv udat.MemPriv) (e end, err error) {
	if e.ia, err = udat.Open(device); err != nil {
		return e, err
	}
	defer func() {
		if err != nil {
			e.ia.Close(udat.CloseAbrupt)
		}
	}()
	pz, err := e.ia.CreatePZ()
	if err != nil {
		return e, err
	}
	if e.events, err = e.ia.CreateEVD(4*slots, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return e, err
	}
	// Each slot needs a write and a Send. The queue holds twice as many requests, because a suppressed
	// request occupies its queue slot until a later request completes, and the library requests a
	// completion only after half a queue of suppressed requests.
	attr := &udat.EPAttr{MaxRecvDTOs: slots, MaxRequestDTOs: 2 * 2 * slots}
	if e.ep, err = e.ia.CreateEP(pz, e.events, e.events, e.events, attr); err != nil {
		return e, err
	}
	if e.mem, err = e.ia.AllocLMR(pz, outbox+slots*notice, priv); err != nil {
		return e, err
	}
	for i := range slots {
		if err = e.listen(udat.Cookie(i)); err != nil {
			return e, err
		}
	}
	return e, nil
}

// listen posts a receive into inbox i.
func (e end) listen(i udat.Cookie) error {
	return e.ep.PostRecv([]udat.LMRTriplet{e.mem.Triplet(inbox+int(i)*notice, notice)}, i, udat.CompletionDefault)
}

// message writes n to outbox i. It returns the Send that transfers this outbox.
func (e end) message(i int, n uint64) udat.Op {
	at := outbox + i*notice
	binary.BigEndian.PutUint64(e.mem.Bytes()[at:], n)
	return udat.Op{Kind: udat.OpSend, IOV: []udat.LMRTriplet{e.mem.Triplet(at, notice)}}
}

// next returns the next event of the connection or of a receive. It skips successful requests and
// flushed operations. It returns an error if the connection or an operation has failed, or if the
// connection has ended.
func (e end) next() (udat.Event, error) {
	for {
		ev, _, err := e.events.Wait(2*patience, 1) // longer than Connect waits, to get Connect's event
		switch {
		case err != nil:
			return ev, err
		case ev.Number == udat.EventConnectionRequest, ev.Number == udat.EventConnectionEstablished:
			return ev, nil
		case ev.Number != udat.EventDTOCompletion:
			return ev, errors.Join(fmt.Errorf("the connection has ended: %v", ev.Number), ev.Err())
		case ev.Status == udat.DTOErrFlushed || ev.Status == udat.DTOSuccess && ev.Operation != udat.DTOReceive:
		case ev.Status != udat.DTOSuccess:
			return ev, fmt.Errorf("%v: %v", ev.Operation, ev.Status)
		case ev.Length != notice:
			return ev, fmt.Errorf("the peer sends a message of %d bytes instead of %d", ev.Length, notice)
		default:
			return ev, nil
		}
	}
}

// number waits for the peer's next message, returns the number in it, and reposts the receive.
func (e end) number() (uint64, error) {
	ev, err := e.next()
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint64(e.mem.Bytes()[inbox+int(ev.Cookie)*notice:])
	return n, e.listen(ev.Cookie)
}

// hangUp disconnects once the posted requests are done, and waits for the end of the connection.
// Without hangUp, closing the adapter would break the connection at once.
func (e end) hangUp() error {
	if err := e.ep.Disconnect(udat.CloseGraceful); err != nil {
		return err
	}
	for {
		ev, _, err := e.events.Wait(patience, 1)
		if err != nil || ev.Number != udat.EventDTOCompletion {
			return err
		}
	}
}

// receive stores the file of one sender. It writes to NAME.part, and renames the file when it is
// complete.
func receive(device, name string, ready func(netip.AddrPort)) error {
	e, err := open(device, udat.PrivAll)
	if err != nil {
		return err
	}
	defer e.ia.Close(udat.CloseAbrupt)
	file, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	defer file.Close()
	qual, psp, err := e.ia.CreatePSPAny(e.events, udat.PSPConsumer)
	if err != nil {
		return err
	}
	ready(netip.AddrPortFrom(e.ia.Addr(), uint16(qual)))
	request, err := e.next()
	if err != nil {
		return err
	}
	psp.Free() // accept only one sender
	ring, _ := e.mem.RMRTriplet(0, slots*slot).MarshalBinary()
	if err := request.CR.Accept(e.ep, ring); err != nil {
		return err
	}
	if _, err := e.next(); err != nil { // the connection is established
		return err
	}
	for i := 0; ; i = (i + 1) % slots {
		n, err := e.number() // the data was written before this message was sent
		if err == nil && n > slot {
			err = fmt.Errorf("the sender claims %d bytes in a slot of %d", n, slot)
		}
		if err == nil {
			_, err = file.Write(e.mem.Bytes()[i*slot : i*slot+int(n)])
		}
		if err == nil && n == 0 {
			err = errors.Join(file.Sync(), os.Rename(name+".part", name))
		}
		if err == nil {
			_, err = e.ep.PostBatch([]udat.Op{e.message(i, n)})
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return e.hangUp()
		}
	}
}

// send sends a file and returns when the receiver has stored it.
func send(device, name string, to netip.AddrPort) error {
	e, err := open(device, udat.PrivLocalRead|udat.PrivLocalWrite)
	if err != nil {
		return err
	}
	defer e.ia.Close(udat.CloseAbrupt)
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := e.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), patience, nil, udat.QoSBestEffort,
		udat.ConnectDefault); err != nil {
		return err
	}
	established, err := e.next()
	if err != nil {
		return err
	}
	var ring udat.RMRTriplet
	if data := established.PrivateData(); len(data) >= udat.RMRTripletSize { // the transport may pad the data
		err = ring.UnmarshalBinary(data[:udat.RMRTripletSize])
	}
	if err != nil || ring.SegmentLength != slots*slot {
		return fmt.Errorf("the peer is no receiver of filecopy: %w", errors.Join(err, errors.ErrUnsupported))
	}
	credits := slots
	for i := 0; ; i = (i + 1) % slots {
		for ; credits == 0; credits++ {
			if _, err := e.number(); err != nil {
				return err
			}
		}
		n, err := io.ReadFull(file, e.mem.Bytes()[i*slot:(i+1)*slot])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		to := ring
		to.TargetAddress += uint64(i * slot)
		to.SegmentLength = uint64(n)
		// The write and the Send are posted with one doorbell. Both suppress their completions, because
		// the receiver's credit shows that both are done.
		ops := []udat.Op{{Kind: udat.OpRDMAWrite, IOV: []udat.LMRTriplet{e.mem.Triplet(i*slot, n)}, Remote: to},
			e.message(i, uint64(n))}
		ops[0].Flags, ops[1].Flags = udat.CompletionSuppress, udat.CompletionSuppress
		if _, err := e.ep.PostBatch(ops); err != nil {
			return err
		}
		credits--
		if n == 0 {
			break
		}
	}
	for ; credits < slots; credits++ {
		if _, err := e.number(); err != nil {
			return err
		}
	}
	return e.hangUp()
}
