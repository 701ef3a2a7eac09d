package rdmanet_test

import (
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
	fmt.Fprint(conn, "hello")
	conn.CloseWrite()
	echo, err := io.ReadAll(conn)
	fmt.Println(string(echo), err)
	conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := rdmanet.Drain(ctx); err != nil { // before the process exits: what Write has accepted is delivered
		log.Print(err)
	}
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
		conn, err := l.AcceptConn()
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		values, err := conn.NewRegion([]byte("a large value"), rdmanet.PeerReads)
		if err != nil {
			log.Fatal(err)
		}
		name, _ := values.Remote().MarshalBinary()
		rdmanet.NewMessages(conn).SendMsg(context.Background(), name)
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
	if _, err := rdmanet.NewMessages(conn).RecvMsg(context.Background(), p); err != nil {
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
	err = conn.ReadRemote(context.Background(), local, 0, remote)
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
	server, err := l.AcceptConn()
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
	server, err := l.AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	grant, err := server.Grant(context.Background(), table, 0, 12, rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	remote := grant.Remote() // a real client gets it in a message: see ExampleMessages

	local, err := client.NewRegion(make([]byte, remote.Len()), 0)
	if err != nil {
		log.Fatal(err)
	}
	err = client.ReadRemote(context.Background(), local, 0, remote)
	fmt.Println(string(local.Bytes()), err)
	grant.Revoke()
	err = client.ReadRemote(context.Background(), local, 0, remote)
	fmt.Println(err != nil)
	// Output:
	// of the first <nil>
	// true
}
