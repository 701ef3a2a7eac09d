package rdmanet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// benchDevice is the device of the benchmarks: that of the environment, or mem0.
func benchDevice() string {
	if env := os.Getenv(deviceEnv); env != "" {
		return env
	}
	return "mem0"
}

// benchPair connects two ends: "rdmanet" on the device, "tcp" on the device's address.
func benchPair(b *testing.B, kind string, buffer int) (client, server net.Conn) {
	if kind == "rdmanet" {
		return pair(b, benchDevice(), rdmanet.Dialer{ReadBuffer: buffer, WriteBuffer: buffer},
			rdmanet.ListenConfig{ReadBuffer: buffer, WriteBuffer: buffer})
	}
	ia, err := udat.Open(benchDevice())
	assert.NilError(b, err)
	address := net.JoinHostPort(ia.Addr().String(), "0")
	ia.Close(udat.CloseAbrupt)
	l, err := net.Listen("tcp", address)
	assert.NilError(b, err)
	defer l.Close()
	client, err = new(net.Dialer).DialContext(context.Background(), "tcp", l.Addr().String())
	assert.NilError(b, err)
	server, err = l.Accept()
	assert.NilError(b, err)
	b.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// BenchmarkRoundTrip measures a request and its answer of the same size; ci/rdmanet-bench.sh runs
// the benchmarks beside rstream.
func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range []string{"rdmanet", "udat", "tcp"} {
		for _, size := range []int{64, 4096} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				if kind == "udat" {
					udatRoundTrips(b, size)
					return
				}
				client, server := benchPair(b, kind, 0)
				done := make(chan error, 1)
				go func() {
					p := make([]byte, size)
					for {
						if _, err := io.ReadFull(server, p); err != nil {
							done <- err
							return
						}
						if _, err := server.Write(p); err != nil {
							done <- err
							return
						}
					}
				}()
				p := make([]byte, size)
				b.ReportAllocs()
				for b.Loop() {
					_, err := client.Write(p)
					assert.NilError(b, err)
					_, err = io.ReadFull(client, p)
					assert.NilError(b, err)
				}
				client.Close()
				if err := <-done; !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkStream measures writes of a size into a reader that discards them.
func BenchmarkStream(b *testing.B) {
	for _, kind := range []string{"rdmanet", "udat", "tcp"} {
		for _, size := range []int{64, 65536} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				if kind == "udat" {
					udatStream(b, size)
					return
				}
				client, server := benchPair(b, kind, 1<<20)
				done := make(chan error, 1)
				go func() {
					p := make([]byte, 256<<10)
					for {
						if _, err := server.Read(p); err != nil {
							done <- err
							return
						}
					}
				}()
				p := make([]byte, size)
				b.ReportAllocs()
				for b.Loop() {
					_, err := client.Write(p)
					assert.NilError(b, err)
				}
				client.Close()
				if err := <-done; !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			})
		}
	}
}

// bare is an endpoint of udat with a dispatcher of its own.
type bare struct {
	ep   *udat.EP
	evd  *udat.EVD
	mem  *udat.LMR
	size int
}

const bareDepth = 32

func barePair(b *testing.B, size int) (client, server *bare) {
	ia, err := udat.Open(benchDevice())
	assert.NilError(b, err)
	b.Cleanup(func() { ia.Close(udat.CloseAbrupt) })
	pz, err := ia.CreatePZ()
	assert.NilError(b, err)
	ends := make([]*bare, 2)
	for i := range ends {
		e := &bare{size: size}
		e.evd, err = ia.CreateEVD(4*bareDepth, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil)
		assert.NilError(b, err)
		e.ep, err = ia.CreateEP(pz, e.evd, e.evd, e.evd, &udat.EPAttr{MaxRequestDTOs: bareDepth, MaxRecvDTOs: bareDepth})
		assert.NilError(b, err)
		e.mem, err = ia.AllocLMR(pz, 2*size, udat.PrivAll)
		assert.NilError(b, err)
		ends[i] = e
	}
	client, server = ends[0], ends[1]
	qual, _, err := ia.CreatePSPAny(server.evd, udat.PSPConsumer)
	assert.NilError(b, err)
	assert.NilError(b, client.ep.Connect(ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
	ev, _, err := server.evd.Wait(patience, 1)
	assert.NilError(b, err)
	assert.NilError(b, ev.CR.Accept(server.ep, nil))
	for _, e := range ends {
		ev, _, err := e.evd.Wait(patience, 1)
		assert.NilError(b, err)
		assert.Equal(b, ev.Number, udat.EventConnectionEstablished)
	}
	return client, server
}

func (e *bare) receive() error {
	return e.ep.PostRecv([]udat.LMRTriplet{e.mem.Triplet(e.size, e.size)}, 0, udat.CompletionDefault)
}

func (e *bare) send() error {
	return e.ep.PostSend([]udat.LMRTriplet{e.mem.Triplet(0, e.size)}, 1, udat.CompletionSuppress)
}

// message waits for a message and posts the receive for the next.
func (e *bare) message() error {
	ev, _, err := e.evd.Wait(patience, 1)
	for err == nil && ev.Operation != udat.DTOReceive && ev.Status == udat.DTOSuccess {
		ev, _, err = e.evd.Wait(patience, 1)
	}
	if err != nil {
		return err
	}
	if ev.Status != udat.DTOSuccess {
		return fmt.Errorf("%v", ev.Status)
	}
	return e.receive()
}

// udatRoundTrips is the round trip of udat's Send: each end waits for its messages in a goroutine.
func udatRoundTrips(b *testing.B, size int) {
	client, server := barePair(b, size)
	for _, e := range []*bare{client, server} {
		assert.NilError(b, e.receive())
		assert.NilError(b, e.receive())
	}
	done := make(chan error, 1)
	go func() {
		for {
			err := server.message()
			if err == nil {
				err = server.send()
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		assert.NilError(b, client.send())
		assert.NilError(b, client.message())
	}
	client.ep.Disconnect(udat.CloseAbrupt)
	<-done
}

// udatStream is RDMA writes of udat: posted one at a time, every eighth with a completion.
func udatStream(b *testing.B, size int) {
	client, server := barePair(b, size)
	iov := []udat.LMRTriplet{client.mem.Triplet(0, size)}
	remote := server.mem.RMRTriplet(0, size)
	posted, done := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		for posted-done >= bareDepth {
			_, _, err := client.evd.Wait(patience, 1)
			assert.NilError(b, err)
			done += 8
		}
		posted++
		flags := udat.CompletionSuppress
		if posted%8 == 0 {
			flags = udat.CompletionDefault
		}
		assert.NilError(b, client.ep.PostRDMAWrite(iov, 0, remote, flags))
	}
}
