package rdmanet_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/godat/godat/rdmanet"
)

// ends returns both ends of a connection of mem0.
func ends() (client, server *rdmanet.Conn) {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := rdmanet.Dialer{Device: "mem0"}
	client, err = d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	server, err = l.AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	return client, server
}

// HTTP over RDMA: the server has a Listener, the client a Transport that dials.
func ExampleDialer() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello over ", r.Context().Value(http.LocalAddrContextKey).(net.Addr).Network())
	})}
	go server.Serve(l)
	defer server.Close()

	d := rdmanet.Dialer{Device: "mem0", Timeout: 10 * time.Second}
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(string(text), err)
	// Output: hello over rdma <nil>
}

// A client that prefers RDMA, and uses TCP if no RDMA device reaches the server.
func ExampleErrNoDevice() {
	d := rdmanet.Dialer{Fallback: func(reason error) { log.Println("over TCP:", reason) }}
	conn, err := d.DialContext(context.Background(), "rdma", "storage.example:7000")
	if errors.Is(err, rdmanet.ErrNoDevice) {
		log.Fatal("not reached: Fallback is set")
	}
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	log.Println("connected over", conn.LocalAddr().Network())
}

// A server for bursts of clients, with small buffers, a log of its own, and addresses that programs
// made for TCP understand.
func ExampleListenConfig() {
	config := rdmanet.ListenConfig{
		Device: "mem0", Backlog: 10000, ReadBuffer: 16 << 10, WriteBuffer: 16 << 10, KeepAlive: time.Minute,
		TCPAddrs: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	_, tcp := l.Addr().(*net.TCPAddr)
	fmt.Println(tcp, l.Close())
	// Output: true <nil>
}

// A server that does other work each second, and publishes its figures.
func ExampleListener() {
	config := rdmanet.ListenConfig{Device: "mem0"}
	l, err := config.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	expvar.Publish("connections", expvar.Func(func() any { return l.Stats() }))
	l.SetDeadline(time.Now().Add(10 * time.Millisecond)) // a real program would set a second
	_, err = l.AcceptConn()
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded), expvar.Get("connections"))
	// Output:
	// true {"Accepted":0,"Refused":0,"Failed":0,"GivenUp":0,"Waiting":0,"InMaking":0,"Unanswered":0}
}

// A monitor of a listener checks how many connections wait and whether requests were refused.
func ExampleListenerStats() {
	var s rdmanet.ListenerStats // a real program calls Listener.Stats
	if s.Waiting > 100 || s.Refused > 0 {
		fmt.Println("the server does not keep up")
	}
	fmt.Println(s.Accepted)
	// Output: 0
}

// A program that exits after Close. Before that its data is delivered, or it gets an error that
// reports the loss.
func ExampleDrain() {
	client, server := ends()
	defer server.Close()
	fmt.Fprint(client, "last words")
	client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := rdmanet.Drain(ctx); err != nil {
		log.Println(err)
	}
	text, err := io.ReadAll(server)
	fmt.Println(string(text), err)
	// Output: last words <nil>
}

// A call that ends at its deadline, and data that is read after the other end has closed.
func ExampleConn() {
	client, server := ends()
	defer client.Close()
	client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := client.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
	client.SetReadDeadline(time.Time{})

	server.SetLinger(10) // Close waits up to 10 s until what was written has reached the peer
	server.Write([]byte("goodbye"))
	server.Close()
	text, err := io.ReadAll(client)
	fmt.Println(string(text), err)
	// Output:
	// true
	// goodbye <nil>
}

// Figures of a connection, here of one that has sent 5 bytes.
func ExampleStats() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	client.Write([]byte("hello"))
	io.ReadFull(server, make([]byte, 5))
	fmt.Println(client.Stats().BytesWritten, server.Stats().BytesRead)
	// Output: 5 5
}

// A connection whose packets have DSCP 26 (AF31), and whose calls never poll.
func ExamplePath() {
	tos, spin := 26<<2, time.Duration(0)
	path := rdmanet.Path{TOS: &tos, Spin: &spin}
	d := rdmanet.Dialer{Path: path}
	config := rdmanet.ListenConfig{Path: path}
	fmt.Println(*d.Path.TOS, *config.Path.Spin)
	// Output: 104 0s
}

// An Addr has the methods of netip.AddrPort.
func ExampleAddr() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	a := client.RemoteAddr().(rdmanet.Addr)
	fmt.Println(a.Network(), a.Addr().Is4(), a.Port() != 0, a == server.LocalAddr())
	// Output: rdma true true true
}

// The peer reads registered memory and writes it.
func ExampleRegion() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	table, err := server.NewRegion([]byte("before"), rdmanet.PeerReads|rdmanet.PeerWrites)
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close() // from then on its Remote is invalid
	local, err := client.NewRegion(make([]byte, 6), 0)
	if err != nil {
		log.Fatal(err)
	}
	defer local.Close()
	// A real client gets the Remote in a message: see ExampleMessages.
	err = client.ReadRemote(context.Background(), local, 0, table.Remote())
	fmt.Println(string(local.Bytes()), err)
	copy(local.Bytes(), "after ")
	err = client.WriteRemote(context.Background(), table.Remote(), local, 0)
	fmt.Println(string(table.Bytes()), err)
	// Output:
	// before <nil>
	// after  <nil>
}

// Memory that the peer may change only by atomic operations on words.
func ExampleAccess() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	counter, err := server.NewRegion(make([]byte, 8), rdmanet.PeerAtomics)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	first, err := client.FetchAdd(ctx, counter.Remote(), 5)
	fmt.Println(first, err)
	second, err := client.CompareSwap(ctx, counter.Remote(), 5, 0)
	fmt.Println(second, err)
	// Output:
	// 0 <nil>
	// 5 <nil>
}

// The Remote of a region is sent to the peer, which uses the last four bytes.
func ExampleRemote() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	table, err := server.NewRegion([]byte("left and right"), rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	name, err := table.Remote().MarshalBinary()
	if err != nil {
		log.Fatal(err)
	}
	server.Write(name)

	name = make([]byte, rdmanet.RemoteSize)
	if _, err := io.ReadFull(client, name); err != nil {
		log.Fatal(err)
	}
	var remote rdmanet.Remote
	if err := remote.UnmarshalBinary(name); err != nil {
		log.Fatal(err)
	}
	part, err := remote.Slice(remote.Len()-5, 5)
	if err != nil {
		log.Fatal(err)
	}
	local, err := client.NewRegion(make([]byte, 5), 0)
	if err != nil {
		log.Fatal(err)
	}
	err = client.ReadRemote(context.Background(), local, 0, part)
	fmt.Println(string(local.Bytes()), err)
	// Output: right <nil>
}

// The peer's memory as an io.ReaderAt, for a program that registers nothing itself.
func ExampleRemoteMemory() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	table, err := server.NewRegion([]byte("left and right"), rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	memory := client.RemoteMemory(ctx, table.Remote()) // a real client gets the Remote in a message
	text, err := io.ReadAll(io.NewSectionReader(memory, 9, 5))
	fmt.Println(string(text), err)
	// Output: right <nil>
}

// A read that is in flight while the program does something else.
func ExamplePending() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	table, err := server.NewRegion([]byte("hello"), rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	local, err := client.NewRegion(make([]byte, 5), 0)
	if err != nil {
		log.Fatal(err)
	}
	b := client.NewBatch()
	b.Read(local, 0, table.Remote())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // for the whole read
	defer cancel()
	pending, err := b.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Here the program does something else.
	err = pending.Wait()
	fmt.Println(string(local.Bytes()), err)
	// Output: hello <nil>
}

// A program registers memory with a Zone once, and may change the bytes at any time. ExampleZone
// shows a client that reads such memory.
func ExampleMemory() {
	zone, err := rdmanet.NewZone("mem0", rdmanet.Path{})
	if err != nil {
		log.Fatal(err)
	}
	defer zone.Close()
	table, err := zone.Register(make([]byte, 4096))
	if err != nil {
		log.Fatal(err)
	}
	copy(table.Bytes(), "a value")
	fmt.Println(string(table.Bytes()[:7]), table.Close())
	// Output: a value <nil>
}

// A grant that ends while its connection goes on: see ExampleZone for the other end.
func ExampleGrant() {
	zone, err := rdmanet.NewZone("mem0", rdmanet.Path{})
	if err != nil {
		log.Fatal(err)
	}
	defer zone.Close()
	table, err := zone.Register(make([]byte, 4096))
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
	grant, err := server.Grant(context.Background(), table, 1024, 512, rdmanet.PeerReads)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Remote().Len(), grant.Revoke())
	// Output: 512 <nil>
}

// A message is longer than the buffer. The error has its length, so that it can be received with a
// longer buffer.
func ExampleMsgTooLongError() {
	client, server := ends()
	defer client.Close()
	defer server.Close()
	rdmanet.NewMessages(client).SendMsg(context.Background(), []byte("more than four bytes"))
	_, err := rdmanet.NewMessages(server).RecvMsg(context.Background(), make([]byte, 4))
	if tooLong, ok := errors.AsType[*rdmanet.MsgTooLongError](err); ok {
		fmt.Println("the message has", tooLong.Len, "bytes")
	}
	// Output: the message has 20 bytes
}
