package rdmanet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/godat/godat/rdmanet"
)

// An echo service and its client. For another device, and between two hosts, only Device changes.
// It may be left out.
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

// A server sends a client the Remote of a registered value. The client reads the value by RDMA
// read; the server's program takes no part.
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
	if err := remote.UnmarshalBinary(p); err != nil || remote.Len() > 4096 { // the value comes from the peer
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

// A client counts its visit in a word of the server's memory, and reads two pieces of the memory at
// the same time.
func ExampleBatch() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: "mem0"}
	client, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := l.(*rdmanet.Listener).AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	table, err := server.NewRegion([]byte("........left and right"), rdmanet.PeerReads|rdmanet.PeerAtomics)
	if err != nil {
		log.Fatal(err)
	}
	remote := table.Remote() // a real client gets it in a message: see ExampleMessages

	visits, _ := remote.Slice(0, 8)
	left, _ := remote.Slice(8, 4)
	right, _ := remote.Slice(17, 5)
	local, err := client.NewRegion(make([]byte, 9), 0)
	if err != nil {
		log.Fatal(err)
	}
	var before uint64
	b := client.NewBatch()
	b.FetchAdd(visits, 1, &before)
	b.Read(local, 0, left)
	b.Read(local, 4, right)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pending, err := b.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Here the program does something else.
	err = pending.Wait()
	fmt.Println(string(local.Bytes()), before == 0x2e2e2e2e2e2e2e2e, err)
	// Output: leftright true <nil>
}

// A server registers its table once for all clients and grants a client a part of it. The client
// can read that part until the server revokes the grant.
func ExampleZone() {
	zone, err := rdmanet.NewZone("mem0", rdmanet.Path{})
	if err != nil {
		log.Fatal(err) // errors.ErrUnsupported: the device has no memory windows
	}
	defer zone.Close()
	table, err := zone.Register([]byte("of the first | of the second"))
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	config := rdmanet.ListenConfig{Zone: zone}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: "mem0"}
	client, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := l.(*rdmanet.Listener).AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	grant, err := server.Grant(table, 0, 12, rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	remote := grant.Remote() // a real client gets it in a message: see ExampleMessages

	local, err := client.NewRegion(make([]byte, remote.Len()), 0)
	if err != nil {
		log.Fatal(err)
	}
	err = client.ReadRemote(local, 0, remote)
	fmt.Println(string(local.Bytes()), err)
	grant.Revoke()
	err = client.ReadRemote(local, 0, remote)
	fmt.Println(err != nil)
	// Output:
	// of the first <nil>
	// true
}

// A client writes into the server's memory and notifies the server's program, without waiting for
// the write before.
func ExampleConn_Notify() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: "mem0"}
	client, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := l.(*rdmanet.Listener).AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	inbox, err := server.NewRegion(make([]byte, 5), rdmanet.PeerWrites)
	if err != nil {
		log.Fatal(err)
	}
	local, err := client.NewRegion([]byte("hello"), 0)
	if err != nil {
		log.Fatal(err)
	}
	b := client.NewBatch()
	b.Write(inbox.Remote(), local, 0) // a real client gets the Remote in a message: see ExampleMessages
	pending, err := b.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Notify(5); err != nil {
		log.Fatal(err)
	}
	n, err := server.ReadNotice()
	if err != nil || n > uint64(len(inbox.Bytes())) { // the value comes from the peer
		log.Fatal(err, n)
	}
	fmt.Println(string(inbox.Bytes()[:n]), pending.Wait())
	// Output: hello <nil>
}

// A server takes lines out of the stream in place: where the peer has written them.
func ExampleConn_ReadFunc() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: "mem0"}
	client, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := l.(*rdmanet.Listener).AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	fmt.Fprint(client, "first\nsecond\n")
	for range 2 {
		err := server.ReadFunc(func(p []byte) (int, error) {
			line, _, whole := bytes.Cut(p, []byte("\n"))
			if !whole {
				return 0, io.ErrShortBuffer // read the rest of it by Read
			}
			fmt.Println(string(line))
			return len(line) + 1, nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first
	// second
}
