// Command kv is a key-value store. Clients read its table by RDMA, so that reads take no time of
// the server's process.
//
//	kv DEVICE                       serve; each line KEY=VALUE of standard input sets a value
//	kv DEVICE ADDRESS:PORT KEY...   print the values of keys
//
// DEVICE is a name ("rxe0"), a local IP address, or tcp:ADDRESS (RDMA over TCP). In two shells:
//
//	$ go run ./examples/kv tcp:127.0.0.1
//	serving on 127.0.0.1:43967
//	colour=green
//	set colour
//
//	$ go run ./examples/kv tcp:127.0.0.1 127.0.0.1:43967 colour
//	colour=green
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
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/rdmanet"
)

const (
	slots    = 1024
	size     = 256 // bytes of a slot: a checksum, the lengths of key and value, the key and the value
	header   = 8 + 2 + 2
	patience = 10 * time.Second
)

var polynomial = crc64.MakeTable(crc64.ECMA)

var errTorn = errors.New("the value is torn")

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] != "-h":
		err = serve(os.Args[1], os.Stdin, func(at net.Addr) { fmt.Println("serving on", at) })
	case len(os.Args) > 3:
		err = printAll(os.Args[1], os.Args[2], os.Args[3:])
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

func newTable() table {
	t := make(table, slots*size)
	for at := 0; at < len(t); at += size {
		seal(t[at:][:size])
	}
	return t
}

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

// serve lets clients read a table, and stores the value of each input line in it, until the input
// ends.
func serve(device string, lines io.Reader, ready func(net.Addr)) error {
	l, err := (&rdmanet.ListenConfig{Device: device}).Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return err
	}
	t := newTable()
	ctx, end := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	clients.Go(func() {
		for conn, err := l.AcceptConn(); err == nil; conn, err = l.AcceptConn() { // until it is closed
			clients.Go(func() { show(ctx, conn, t) })
		}
	})
	ready(l.Addr())
	input := bufio.NewScanner(lines)
	for input.Scan() {
		key, value, _ := strings.Cut(input.Text(), "=")
		if err := t.set(key, value); err != nil {
			log.Print(err)
			continue
		}
		fmt.Println("set", key)
	}
	end()
	l.Close()
	clients.Wait()
	return input.Err()
}

// show lets a client read the table until the client closes its connection or ctx ends. Until then
// this program takes no part.
func show(ctx context.Context, conn *rdmanet.Conn, t table) {
	defer conn.Close()
	region, err := conn.NewRegion(t, rdmanet.PeerReads)
	if err != nil {
		log.Print(err)
		return
	}
	messages := rdmanet.NewMessages(conn)
	where, _ := region.Remote().MarshalBinary()
	if err := messages.SendMsg(ctx, where); err == nil {
		messages.RecvMsg(ctx, nil)
	}
}

// reader is a client's connection to a server.
type reader struct {
	conn  *rdmanet.Conn
	table rdmanet.Remote
	slot  *rdmanet.Region
}

func dial(ctx context.Context, device, server string) (r *reader, err error) {
	r = &reader{}
	if r.conn, err = (&rdmanet.Dialer{Device: device}).Dial(ctx, "rdma", server); err != nil {
		return nil, err
	}
	where := make([]byte, rdmanet.RemoteSize)
	if _, err = rdmanet.NewMessages(r.conn).RecvMsg(ctx, where); err == nil {
		err = r.table.UnmarshalBinary(where)
	}
	if err == nil && r.table.Len() != slots*size {
		err = fmt.Errorf("%v has a table of %d bytes instead of %d", server, r.table.Len(), slots*size)
	}
	if err == nil {
		r.slot, err = r.conn.NewRegion(make([]byte, size), 0)
	}
	return r, err
}

// get returns the value of a key. It reads a torn value again, until ctx ends.
func (r *reader) get(ctx context.Context, key string) (string, error) {
	from, err := r.table.Slice(uint64(slotOf(key)), size)
	for err == nil {
		if err = r.conn.ReadRemote(ctx, r.slot, 0, from); err != nil {
			break
		}
		found, value, bad := parse(r.slot.Bytes()) // safe: the read has ended, so nobody writes to the slot
		switch {
		case errors.Is(bad, errTorn):
		case bad == nil && found != key:
			return "", fmt.Errorf("there is no %q", key)
		default:
			return value, bad
		}
	}
	return "", fmt.Errorf("%q: %w", key, err)
}

func printAll(device, server string, keys []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := dial(ctx, device, server)
	if err != nil {
		return err
	}
	defer r.conn.Close()
	for _, key := range keys {
		value, err := r.get(ctx, key)
		if err != nil {
			return err
		}
		fmt.Printf("%s=%s\n", key, value)
	}
	return nil
}
