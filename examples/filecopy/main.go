// Command filecopy copies a file to another host by RDMA writes. After each write it sends a
// message. When the message arrives, the data of the write is in the receiver's memory.
//
//	filecopy DEVICE FILE                   receive one file; print the address for the sender
//	filecopy DEVICE FILE ADDRESS:PORT      send the file
//
// DEVICE is a name ("rxe0"), a local IP address, or tcp (RDMA over TCP). The receiver has a ring of
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
	c, err := l.Accept()
	if err != nil {
		return err
	}
	l.Close() // one sender is all
	conn := c.(*rdmanet.Conn)
	defer conn.Close()
	messages := rdmanet.NewMessages(conn)
	ring, err := conn.NewRegion(make([]byte, slots*slot), rdmanet.PeerWrites)
	if err != nil {
		return err
	}
	remote, err := ring.Remote().MarshalBinary()
	if err == nil {
		err = messages.SendMsg(remote)
	}
	for i := 0; err == nil; i = (i + 1) % slots {
		conn.SetDeadline(time.Now().Add(patience))
		var n uint64
		if n, err = number(messages); err == nil && n > slot { // the data was written before this message was sent
			err = fmt.Errorf("the sender claims %d bytes in a slot of %d", n, slot)
		}
		if err != nil {
			break
		}
		if n == 0 {
			return finish(file, name, messages)
		}
		if _, err = file.Write(ring.Bytes()[i*slot:][:n]); err == nil {
			err = messages.SendMsg(nil)
		}
	}
	return err
}

// finish gives the complete file its name, tells the sender, and waits until the sender knows.
func finish(file *os.File, name string, messages *rdmanet.Messages) error {
	err := errors.Join(file.Sync(), os.Rename(file.Name(), name))
	if err != nil {
		return err
	}
	if err := messages.SendMsg(nil); err != nil {
		return err
	}
	if _, err := messages.RecvMsg(nil); err != io.EOF {
		return err
	}
	return nil
}

// number receives a message with the number of bytes in the next slot; 0 is the end of the file.
func number(messages *rdmanet.Messages) (uint64, error) {
	var b [8]byte
	n, err := messages.RecvMsg(b[:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && n != len(b) {
		err = fmt.Errorf("the peer sends a message of %d bytes instead of %d", n, len(b))
	}
	return binary.BigEndian.Uint64(b[:]), err
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
	conn.SetDeadline(time.Now().Add(patience))
	var ring rdmanet.Remote
	text := make([]byte, rdmanet.RemoteSize)
	n, err := messages.RecvMsg(text)
	if err == nil {
		err = ring.UnmarshalBinary(text[:n])
	}
	if err != nil || ring.Len() != slots*slot {
		return fmt.Errorf("the peer is no receiver of filecopy: %w", errors.Join(err, errors.ErrUnsupported))
	}
	buffer, err := conn.NewRegion(make([]byte, slot), 0)
	if err != nil {
		return err
	}
	free := slots
	for i := 0; ; i = (i + 1) % slots {
		conn.SetDeadline(time.Now().Add(patience))
		n, err := io.ReadFull(file, buffer.Bytes())
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if free == 0 {
			if _, err := messages.RecvMsg(nil); err != nil {
				return err
			}
			free++
		}
		if err := fill(messages, ring, i, buffer, n); err != nil {
			return err
		}
		if free--; n == 0 {
			break
		}
	}
	for ; free < slots; free++ {
		if _, err := messages.RecvMsg(nil); err != nil {
			return fmt.Errorf("before the receiver has stored the file: %w", err)
		}
	}
	return nil
}

// fill writes the first n bytes of the buffer to slot i of the ring, and tells the receiver.
func fill(messages *rdmanet.Messages, ring rdmanet.Remote, i int, buffer *rdmanet.Region, n int) error {
	if n > 0 {
		to, err := ring.Slice(uint64(i*slot), uint64(n))
		if err == nil {
			err = messages.Conn().WriteRemote(to, buffer, 0)
		}
		if err != nil {
			return err
		}
	}
	return messages.SendMsg(binary.BigEndian.AppendUint64(nil, uint64(n)))
}
