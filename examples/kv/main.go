// Command kv is a key-value store. Clients read its table by RDMA, so that reads take no time of
// the server's process.
//
//	kv DEVICE                       serve; each line KEY=VALUE of standard input sets a value
//	kv DEVICE ADDRESS:PORT KEY...   print the values of keys
//
// The table has slots of equal size, and the hash of a key selects its slot. The server may store
// into a slot while a client reads it. An RDMA read guarantees no order between its bytes, so the
// client may get any mixture of the old and the new value. Each slot therefore begins with a
// checksum of the rest. If the checksum does not match, the value is torn, and the client reads the
// slot again.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"hash/fnv"
	"io"
	"log"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

const (
	slots    = 1024
	size     = 256 // bytes of a slot: a checksum, the lengths of key and value, the key and the value
	header   = 8 + 2 + 2
	patience = 10 * time.Second
)

var polynomial = crc64.MakeTable(crc64.ECMA)

var errTorn = errors.New("the value is torn in every read")

func main() {
	var err error
	switch {
	case len(os.Args) == 2:
		err = serve(os.Args[1], os.Stdin, func(at netip.AddrPort) { fmt.Println("serving on", at) })
	case len(os.Args) > 3:
		var server netip.AddrPort
		if server, err = netip.ParseAddrPort(os.Args[2]); err == nil {
			err = printAll(os.Args[1], server, os.Args[3:])
		}
	default:
		err = errors.New("usage: kv DEVICE [ADDRESS:PORT KEY...]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// slotOf returns the offset of the key's slot.
func slotOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32()%slots) * size
}

// table is the memory of the table in the server.
type table []byte

// set stores a value. It returns an error if another key already has the slot.
func (t table) set(key, value string) error {
	if key == "" || header+len(key)+len(value) > size {
		return fmt.Errorf("key and value have %d bytes, the limit is %d, and a key is not empty", len(key)+len(value),
			size-header)
	}
	slot := t[slotOf(key):][:size]
	if old, _, err := parse(slot); err != nil {
		return fmt.Errorf("the slot of %q: %w", key, err)
	} else if old != "" && old != key {
		return fmt.Errorf("the slot of %q has the key %q", key, old)
	}
	binary.BigEndian.PutUint16(slot[8:], uint16(len(key)))
	binary.BigEndian.PutUint16(slot[10:], uint16(len(value)))
	copy(slot[header:], key)
	copy(slot[header+len(key):], value)
	seal(slot)
	return nil
}

func seal(slot []byte) { binary.BigEndian.PutUint64(slot, crc64.Checksum(slot[8:], polynomial)) }

// parse returns the key and the value of a slot. The key is empty if the slot is unused.
func parse(slot []byte) (key, value string, err error) {
	if binary.BigEndian.Uint64(slot) != crc64.Checksum(slot[8:], polynomial) {
		return "", "", errTorn
	}
	k, v := int(binary.BigEndian.Uint16(slot[8:])), int(binary.BigEndian.Uint16(slot[10:]))
	if header+k+v > size {
		return "", "", fmt.Errorf("a slot claims a key of %d and a value of %d bytes", k, v)
	}
	return string(slot[header:][:k]), string(slot[header+k:][:v]), nil
}

// serve creates a table that clients can read. It stores the value of each input line in the table,
// until the input ends.
func serve(device string, lines io.Reader, ready func(netip.AddrPort)) error {
	ia, err := udat.Open(device)
	if err != nil {
		return err
	}
	defer ia.Close(udat.CloseAbrupt)
	pz, err := ia.CreatePZ()
	if err != nil {
		return err
	}
	mem, err := ia.AllocLMR(pz, slots*size, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteRead)
	if err != nil {
		return err
	}
	for slot := range slots {
		seal(mem.Bytes()[slot*size:][:size])
	}
	events, err := ia.CreateEVD(1024, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil)
	if err != nil {
		return err
	}
	qual, _, err := ia.CreatePSPAny(events, udat.PSPConsumer)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		input := bufio.NewScanner(lines)
		for input.Scan() {
			key, value, _ := strings.Cut(input.Text(), "=")
			if err := table(mem.Bytes()).set(key, value); err != nil {
				log.Print(err)
				continue
			}
			fmt.Println("set", key)
		}
		end(input.Err())
	}()
	ready(netip.AddrPortFrom(ia.Addr(), uint16(qual)))
	where, _ := mem.RMRTriplet(0, slots*size).MarshalBinary()
	for {
		ev, _, err := events.WaitContext(ctx, 1)
		switch {
		case ctx.Err() != nil:
			if cause := context.Cause(ctx); cause != context.Canceled {
				return cause
			}
			return nil
		case err != nil:
			return err
		case ev.Number == udat.EventConnectionRequest:
			ep, err := ia.CreateEP(pz, events, events, events, nil)
			if err == nil {
				err = ev.CR.Accept(ep, where)
			}
			if err != nil {
				log.Print(err)
				ev.CR.Reject(nil)
				ep.Free()
			}
		case ev.Number != udat.EventConnectionEstablished: // the client has disconnected
			ev.EP.Free()
		}
	}
}

// reader is a client's connection to a server.
type reader struct {
	ia       *udat.IA
	events   *udat.EVD
	ep       *udat.EP
	mem      *udat.LMR
	table    udat.RMRTriplet
	patience time.Duration
}

func dial(device string, server netip.AddrPort) (_ *reader, err error) {
	r := &reader{patience: patience}
	if r.ia, err = udat.Open(device); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.ia.Close(udat.CloseAbrupt)
		}
	}()
	pz, err := r.ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	if r.mem, err = r.ia.AllocLMR(pz, size, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteWrite); err != nil {
		return nil, err
	}
	if r.events, err = r.ia.CreateEVD(16, udat.EVDDTO|udat.EVDConnection, nil); err != nil {
		return nil, err
	}
	if r.ep, err = r.ia.CreateEP(pz, r.events, r.events, r.events, nil); err != nil {
		return nil, err
	}
	if err = r.ep.Connect(server.Addr(), udat.ConnQual(server.Port()), patience, nil, udat.QoSBestEffort,
		udat.ConnectDefault); err != nil {
		return nil, err
	}
	ev, _, err := r.events.Wait(2*patience, 1) // longer than Connect waits, to get Connect's event
	if err != nil {
		return nil, err
	}
	if ev.Number != udat.EventConnectionEstablished {
		return nil, errors.Join(fmt.Errorf("not connected to %v: %v", server, ev.Number), ev.Err())
	}
	data := ev.PrivateData() // the transport may pad the data
	if err = r.table.UnmarshalBinary(data[:min(len(data), udat.RMRTripletSize)]); err != nil {
		return nil, fmt.Errorf("%v is no server of kv: %w", server, err)
	}
	if r.table.SegmentLength != slots*size {
		return nil, fmt.Errorf("%v has a table of %d bytes instead of %d", server, r.table.SegmentLength, slots*size)
	}
	return r, nil
}

// get returns the value of a key.
func (r *reader) get(key string) (string, error) {
	remote := r.table
	remote.TargetAddress += uint64(slotOf(key))
	remote.SegmentLength = size
	for until := time.Now().Add(r.patience); ; {
		if err := r.ep.PostRDMARead([]udat.LMRTriplet{r.mem.Triplet(0, size)}, 0, remote,
			udat.CompletionDefault); err != nil {
			return "", err
		}
		ev, _, err := r.events.Wait(patience, 1)
		if err != nil {
			return "", err
		}
		if ev.Number != udat.EventDTOCompletion || ev.Status != udat.DTOSuccess {
			return "", fmt.Errorf("the connection has ended: %v %v", ev.Number, ev.Status)
		}
		found, value, err := parse(r.mem.Bytes()) // safe: the read has completed, so nobody writes to mem
		switch {
		case errors.Is(err, errTorn) && time.Now().Before(until):
			continue
		case err != nil:
			return "", fmt.Errorf("%q: %w", key, err)
		case found != key:
			return "", fmt.Errorf("there is no %q", key)
		}
		return value, nil
	}
}

func printAll(device string, server netip.AddrPort, keys []string) error {
	r, err := dial(device, server)
	if err != nil {
		return err
	}
	defer r.ia.Close(udat.CloseAbrupt)
	for _, key := range keys {
		value, err := r.get(key)
		if err != nil {
			return err
		}
		fmt.Printf("%s=%s\n", key, value)
	}
	return nil
}
