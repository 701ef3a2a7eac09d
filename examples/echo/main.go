// Command echo is an echo service over RDMA: each message comes back to its sender.
//
//	echo DEVICE                     serve many clients until interrupted; print the address
//	echo DEVICE ADDRESS:PORT TEXT   send the text to a server and print the answer
//
// DEVICE is a name ("rxe0"), a local IP address, or tcp:ADDRESS (RDMA over TCP). In two shells:
//
//	$ go run ./examples/echo tcp:127.0.0.1
//	serving on 127.0.0.1:38761
//
//	$ go run ./examples/echo tcp:127.0.0.1 127.0.0.1:38761 hello
//	hello
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/godat/godat/rdmanet"
)

// These are the largest message in bytes, and the longest wait.
const size, patience = 4096, 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] != "-h" {
		serve(ctx, os.Args[1], func(at net.Addr) { fmt.Println("serving on", at) })
	} else if len(os.Args) == 4 && len(os.Args[3]) <= size {
		fmt.Println(call(ctx, os.Args[1], os.Args[2], os.Args[3]))
	} else {
		log.Fatal("usage: echo DEVICE [ADDRESS:PORT TEXT], with a text of at most ", size, " bytes")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// serve sends each message back to its sender until ctx ends.
func serve(ctx context.Context, device string, ready func(net.Addr)) {
	l := must((&rdmanet.ListenConfig{Device: device}).Listen(ctx, "rdma", ":0"))
	defer context.AfterFunc(ctx, func() { l.Close() })()
	ready(l.Addr())
	var clients sync.WaitGroup
	for {
		conn, err := l.AcceptConn()
		if err != nil && ctx.Err() != nil {
			break
		}
		must(conn, err)
		clients.Go(func() { answer(ctx, conn) })
	}
	clients.Wait()
	last, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(0, rdmanet.Drain(last)) // the last answers are delivered before the process ends
}

func answer(ctx context.Context, conn *rdmanet.Conn) {
	defer conn.Close()
	messages, buffer := rdmanet.NewMessages(conn), make([]byte, size)
	for {
		n, err := messages.RecvMsg(ctx, buffer)
		if err != nil || messages.SendMsg(ctx, buffer[:n]) != nil {
			return // io.EOF when the client is done
		}
	}
}

func call(ctx context.Context, device, server, text string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn := must((&rdmanet.Dialer{Device: device}).Dial(ctx, "rdma", server))
	defer conn.Close()
	messages, buffer := rdmanet.NewMessages(conn), make([]byte, size)
	must(0, messages.SendMsg(ctx, []byte(text)))
	return string(buffer[:must(messages.RecvMsg(ctx, buffer))])
}
