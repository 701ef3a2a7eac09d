// Command http serves HTTP over RDMA and fetches a page from itself. It runs net/http on a listener
// and a dialer of rdmanet.
//
//	http [DEVICE]
//
// DEVICE is a name ("rxe0", "mlx5_0"), a local IP address, or tcp (RDMA over TCP). The default is
// mem0 (RDMA inside this process).
//
//	$ go run ./examples/http
//	hello gopher, over mem0
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/godat/godat/rdmanet"
)

func main() {
	device := "mem0"
	if len(os.Args) > 1 {
		device = os.Args[1]
	}
	if len(os.Args) > 2 || device == "-h" {
		log.Fatal("usage: http [DEVICE]")
	}
	if err := run(context.Background(), device, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, device string, out io.Writer) error {
	config := rdmanet.ListenConfig{Device: device}
	listener, err := config.Listen(ctx, "rdma", ":0")
	if err != nil {
		return err
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s, over %s\n", r.URL.Query().Get("name"), device)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	dialer := rdmanet.Dialer{Device: device}
	transport := &http.Transport{DialContext: dialer.DialContext}
	client := http.Client{Transport: transport}
	reply, err := client.Get("http://" + listener.Addr().String() + "/?name=gopher")
	if err != nil {
		server.Close()
		return err
	}
	_, err = io.Copy(out, reply.Body)
	reply.Body.Close()

	transport.CloseIdleConnections()
	err = errors.Join(err, server.Shutdown(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
