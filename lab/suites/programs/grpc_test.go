package programs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

func serveGRPC() (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, interop.NewTestServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() error {
		s.GracefulStop()
		return <-served
	}, nil
}

// useGRPC runs gRPC's own interoperability tests, and many calls at the same time.
func useGRPC(t *testing.T, address string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
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
	interop.DoCustomMetadata(ctx, client)
	interop.DoStatusCodeAndMessage(ctx, client)
	interop.DoSpecialStatusMessage(ctx, client)
	interop.DoUnimplementedMethod(ctx, conn)
	parallel(t, 16, func(i int) error { return calls(ctx, client, i) })
	parallel(t, 16, func(int) error { return stream(ctx, client) })
}

func calls(ctx context.Context, client testpb.TestServiceClient, i int) error {
	for k := range 20 {
		size := 1 << ((i + k) % 17)
		r, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: int32(size),
			Payload: &testpb.Payload{Body: bytes.Repeat([]byte{1}, size)}})
		if err != nil || len(r.Payload.Body) != size {
			return fmt.Errorf("call of %d bytes: %w", size, err)
		}
	}
	return nil
}

func stream(ctx context.Context, client testpb.TestServiceClient) error {
	s, err := client.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for k := range 20 {
		size := int32(1 << (k % 17))
		err := s.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: size}}})
		if err != nil {
			return err
		}
		if r, err := s.Recv(); err != nil || len(r.Payload.Body) != int(size) {
			return fmt.Errorf("answer %d of a stream: %w", k, err)
		}
	}
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		return fmt.Errorf("at the end of a stream: %w", err)
	}
	return nil
}
