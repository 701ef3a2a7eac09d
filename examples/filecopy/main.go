// Command filecopy copies a file to another host by RDMA writes. After each write it sends a
// message. When the message arrives, the data of the write is in the receiver's memory.
//
//	filecopy DEVICE FILE                   receive one file; print the address for the sender
//	filecopy DEVICE FILE ADDRESS:PORT      send the file
//
// DEVICE is a name ("rxe0"), a local IP address, or tcp:ADDRESS (RDMA over TCP). In two shells:
//
//	$ go run ./examples/filecopy tcp:127.0.0.1 copy
//	waiting at 127.0.0.1:36543
//
//	$ go run ./examples/filecopy tcp:127.0.0.1 README.md 127.0.0.1:36543
//
// Neither prints more, and both end with status 0. The receiver has a ring of
// slots that the sender writes to. While the receiver stores one slot, the sender fills the next. A
// message of the receiver tells that a slot has been stored and is free.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/godat/godat/rdmanet"
)

const (
	slot     = 1 << 20 // bytes
	slots    = 4
	patience = 30 * time.Second // for the peer's next message
)

func main() {
	var err error
	switch len(os.Args) {
	case 3:
		err = receive(os.Args[1], os.Args[2], func(at net.Addr) { fmt.Println("waiting at", at) })
	case 4:
		err = send(os.Args[1], os.Args[2], os.Args[3])
	default:
		err = errors.New("usage: filecopy DEVICE FILE [ADDRESS:PORT]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// receive stores the file of one sender. It writes to NAME.part, and renames the file when it is
// complete.
func receive(device, name string, ready func(net.Addr)) error {
	file, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	defer file.Close()
	l, err := (&rdmanet.ListenConfig{Device: device}).Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	ready(l.Addr())
	conn, err := l.AcceptConn()
	if err != nil {
		return err
	}
	l.Close() // one sender is all
	defer conn.Close()
	messages := rdmanet.NewMessages(conn)
	ring, err := conn.NewRegion(make([]byte, slots*slot), rdmanet.PeerWrites)
	if err != nil {
		return err
	}
	remote, err := ring.Remote().MarshalBinary()
	if err == nil {
		err = messages.SendMsg(context.Background(), remote) // it fits into the buffer
	}
	for i, n := 0, uint64(1); err == nil && n > 0; i = (i + 1) % slots {
		n, err = store(messages, ring.Bytes()[i*slot:][:slot], file)
	}
	if err != nil {
		return err
	}
	return finish(file, name, messages)
}

// store waits until the sender has written a slot, stores its bytes, and tells the sender that the
// slot is free. It returns the number of bytes, 0 at the end of the file.
func store(messages *rdmanet.Messages, data []byte, file *os.File) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var b [8]byte
	k, err := messages.RecvMsg(ctx, b[:])
	n := binary.BigEndian.Uint64(b[:])
	switch {
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, err
	case k != len(b) || n > slot:
		return 0, fmt.Errorf("the sender claims %d bytes in a slot of %d, in a message of %d", n, slot, k)
	case n == 0:
		return 0, nil
	}
	if _, err := file.Write(data[:n]); err != nil { // they were written before the message was sent
		return 0, err
	}
	return n, messages.SendMsg(ctx, nil)
}

// finish gives the complete file its name, tells the sender, and waits until the sender knows.
func finish(file *os.File, name string, messages *rdmanet.Messages) error {
	err := errors.Join(file.Sync(), os.Rename(file.Name(), name))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := messages.SendMsg(ctx, nil); err != nil {
		return err
	}
	if _, err := messages.RecvMsg(ctx, nil); err != io.EOF {
		return err
	}
	return nil
}

// send sends a file and returns when the receiver has stored it.
func send(device, name, to string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := (&rdmanet.Dialer{Device: device}).Dial(context.Background(), "rdma", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	messages := rdmanet.NewMessages(conn)
	ring, err := meet(messages)
	if err != nil {
		return err
	}
	buffer, err := conn.NewRegion(make([]byte, slot), 0)
	if err != nil {
		return err
	}
	free, n := slots, 1
	for i := 0; n > 0; i = (i + 1) % slots {
		if n, err = io.ReadFull(file, buffer.Bytes()); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if free == 0 {
			if err := stored(messages); err != nil {
				return err
			}
			free++
		}
		if err := fill(messages, ring, i, buffer, n); err != nil {
			return err
		}
		free--
	}
	for ; free < slots; free++ {
		if err := stored(messages); err != nil {
			return fmt.Errorf("before the receiver has stored the file: %w", err)
		}
	}
	return nil
}

// meet receives the place of the receiver's ring.
func meet(messages *rdmanet.Messages) (ring rdmanet.Remote, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text := make([]byte, rdmanet.RemoteSize)
	n, err := messages.RecvMsg(ctx, text)
	if err == nil {
		err = ring.UnmarshalBinary(text[:n])
	}
	if err != nil || ring.Len() != slots*slot {
		err = fmt.Errorf("the peer is no receiver of filecopy: %w", errors.Join(err, errors.ErrUnsupported))
	}
	return ring, err
}

// stored waits until the receiver has stored a slot.
func stored(messages *rdmanet.Messages) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := messages.RecvMsg(ctx, nil)
	return err
}

// fill writes the first n bytes of the buffer to slot i of the ring, and tells the receiver.
func fill(messages *rdmanet.Messages, ring rdmanet.Remote, i int, buffer *rdmanet.Region, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n > 0 {
		to, err := ring.Slice(uint64(i*slot), uint64(n))
		if err == nil {
			err = messages.Conn().WriteRemote(ctx, to, buffer, 0)
		}
		if err != nil {
			return err
		}
	}
	return messages.SendMsg(ctx, binary.BigEndian.AppendUint64(nil, uint64(n)))
}
