// Package grpctest runs google.golang.org/grpc over rdmanet. It is in the module of the tools, so
// that programs that import rdmanet do not get gRPC, and what gRPC needs, into their go.sum.
package grpctest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/godat/godat/rdmanet"
)

// devices are mem0 and those of the environment.
func devices() []string {
	list := []string{"mem0"}
	if env := os.Getenv("GODAT_TEST_DEVICE"); env != "" {
		list = append(list, strings.Split(env, ",")...)
	}
	return list
}

// TestGRPC has gRPC's own interoperability tests, unary and streams, and many calls at once.
func TestGRPC(t *testing.T) {
	for _, dev := range devices() {
		t.Run(dev, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			lc := rdmanet.ListenConfig{Device: dev}
			l, err := lc.Listen(ctx, "rdma", ":0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			testpb.RegisterTestServiceServer(s, interop.NewTestServer())
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			defer func() {
				s.GracefulStop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			d := rdmanet.Dialer{Device: dev}
			conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					return d.DialContext(ctx, "rdma", address)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := testpb.NewTestServiceClient(conn)
			interop.DoEmptyUnaryCall(ctx, client)
			interop.DoLargeUnaryCall(ctx, client)
			interop.DoClientStreaming(ctx, client)
			interop.DoServerStreaming(ctx, client)
			interop.DoPingPong(ctx, client)
			interop.DoEmptyStream(ctx, client)
			interop.DoTimeoutOnSleepingServer(ctx, client)
			interop.DoCancelAfterBegin(ctx, client)
			interop.DoCancelAfterFirstResponse(ctx, client)
			stress(ctx, t, client)
		})
	}
}

// stress makes unary calls and streams of all sizes from many goroutines.
func stress(ctx context.Context, t *testing.T, client testpb.TestServiceClient) {
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for k := range 20 {
				size := 1 << ((i + k) % 17)
				r, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: int32(size),
					Payload: &testpb.Payload{Body: bytes.Repeat([]byte{1}, size)}})
				if err != nil || len(r.Payload.Body) != size {
					t.Errorf("call of %d bytes: %v", size, err)
					return
				}
			}
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 20 {
				size := int32(1 << (k % 17))
				if err := stream.Send(&testpb.StreamingOutputCallRequest{
					ResponseParameters: []*testpb.ResponseParameters{{Size: size}}}); err != nil {
					t.Error(err)
					return
				}
				if r, err := stream.Recv(); err != nil || len(r.Payload.Body) != int(size) {
					t.Errorf("stream: %v", err)
					return
				}
			}
			stream.CloseSend()
			if _, err := stream.Recv(); err != io.EOF {
				t.Errorf("at the end of a stream: %v", err)
			}
		})
	}
	all.Wait()
}
