package rdmanet_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/godat/godat/rdmanet"
)

// An echo service and its client. On another device, and between two hosts, only Device changes; it
// may be left out.
func Example() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()

	d := rdmanet.Dialer{Device: "mem0"}
	conn, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	conn.CloseWrite()
	echo, err := io.ReadAll(conn)
	fmt.Println(string(echo), err)
	// Output: hello <nil>
}

// A store whose values a client reads out of its memory, without the store's program.
func ExampleMessages() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	closed := make(chan bool)
	go func() {
		conn, err := l.(*rdmanet.Listener).AcceptConn()
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		values, err := conn.NewRegion([]byte("a large value"), rdmanet.PeerReads)
		if err != nil {
			log.Fatal(err)
		}
		name, _ := values.Remote().MarshalBinary()
		rdmanet.NewMessages(conn).SendMsg(name)
		<-closed
	}()

	d := rdmanet.Dialer{Device: "mem0"}
	conn, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer close(closed)
	defer conn.Close()
	p := make([]byte, rdmanet.RemoteSize)
	if _, err := rdmanet.NewMessages(conn).RecvMsg(p); err != nil {
		log.Fatal(err)
	}
	var remote rdmanet.Remote
	if err := remote.UnmarshalBinary(p); err != nil || remote.Len() > 4096 { // the peer's word
		log.Fatal(err, remote.Len())
	}
	local, err := conn.NewRegion(make([]byte, remote.Len()), 0)
	if err != nil {
		log.Fatal(err)
	}
	err = conn.ReadRemote(local, 0, remote)
	fmt.Println(string(local.Bytes()), err)
	// Output: a large value <nil>
}
