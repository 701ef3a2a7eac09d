// Command objects serves the objects of a folder as S3 does, over plain HTTP and over RDMA, and
// fetches and stores them. Its protocol is hipobj-rc-v2, the one of S3 over RDMA that needs nothing
// but reliably connected queue pairs; README.md says what was checked.
//
//	objects DEVICE serve ADDRESS FOLDER     serve FOLDER/BUCKET/KEY as http://ADDRESS/BUCKET/KEY
//	objects DEVICE get URL                  print an object
//	objects DEVICE put URL FILE             store a file as an object
//
// DEVICE is the name of an RDMA device, NAME/INDEX to choose the entry of its GID table, or "none"
// for plain HTTP.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

const usage = `usage: objects DEVICE serve ADDRESS FOLDER
       objects DEVICE get URL
       objects DEVICE put URL FILE
DEVICE is the name of an RDMA device, NAME/INDEX of its GID table, or none`

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 || len(os.Args) > 5 || (len(os.Args) == 4) != (os.Args[2] == "get") {
		log.Fatal(usage)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[len(os.Args)-1]); err != nil {
		log.Fatal(err)
	}
}

// open opens the device that the command line names. For "none" it returns nil.
func open(name string) (*Device, error) {
	name, entry, _ := strings.Cut(name, "/")
	index, err := strconv.Atoi(cmp.Or(entry, "-1"))
	if err != nil || name == "none" {
		return nil, err
	}
	return OpenDevice(name, index, 1<<30)
}

func run(name, command, where, file string) error {
	device, err := open(name)
	if err != nil {
		return err
	}
	if device != nil {
		defer device.Close()
	}
	switch command {
	case "serve":
		return serve(device, where, file)
	case "get":
		return ask(device, "GET", where, nil)
	case "put":
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		return ask(device, "PUT", where, f)
	}
	return fmt.Errorf("there is no command %q\n%s", command, usage)
}

func serve(device *Device, address, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	handler := NewServer(root, device)
	defer handler.Close()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Printf("serving http://%v\n", listener.Addr())
	if err = server.Serve(listener); ctx.Err() != nil {
		err = nil
	}
	return err
}

func ask(device *Device, method, url string, file *os.File) error {
	r, err := http.NewRequest(method, url, nil)
	if err == nil && file != nil {
		var info os.FileInfo
		if info, err = file.Stat(); err == nil {
			r.Body, r.ContentLength = file, info.Size()
		}
	}
	if err != nil {
		return err
	}
	client := http.Client{Transport: &Transport{Base: http.DefaultTransport, Device: device}}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(os.Stdout, answer.Body); err == nil && answer.StatusCode != 200 {
		err = fmt.Errorf("%s", answer.Status)
	}
	return err
}
