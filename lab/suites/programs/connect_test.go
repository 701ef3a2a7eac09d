package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type message = wrapperspb.BytesValue

func serveConnect() (string, func() error, error) {
	mux := http.NewServeMux()
	mux.Handle("/echo.Echo/Say", connect.NewUnaryHandler("/echo.Echo/Say",
		func(_ context.Context, q *connect.Request[message]) (*connect.Response[message], error) {
			if len(q.Msg.Value) == 1 {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("one byte"))
			}
			return connect.NewResponse(q.Msg), nil
		}))
	mux.Handle("/echo.Echo/Talk", connect.NewBidiStreamHandler("/echo.Echo/Talk",
		func(_ context.Context, s *connect.BidiStream[message, message]) error {
			for {
				m, err := s.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := s.Send(m); err != nil {
					return err
				}
			}
		}))
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() error { return stopHTTP(s, served) }, nil
}

func useConnect(t *testing.T, address string) {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	hc := &http.Client{Transport: tr}
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		say := connect.NewClient[message, message](hc, "http://"+address+"/echo.Echo/Say", options...)
		talk := connect.NewClient[message, message](hc, "http://"+address+"/echo.Echo/Talk", options...)
		parallel(t, 8, func(i int) error {
			for k := range 12 {
				body := pattern(sizes[k%len(sizes)], i)
				r, err := say.CallUnary(t.Context(), connect.NewRequest(&message{Value: body}))
				switch {
				case len(body) == 1 && connect.CodeOf(err) == connect.CodeInvalidArgument:
				case err != nil || !bytes.Equal(r.Msg.Value, body):
					return fmt.Errorf("%s, %d bytes: %w", name, len(body), err)
				}
			}
			return converse(t.Context(), talk)
		})
	}
}

// converse exchanges messages on a stream.
func converse(ctx context.Context, talk *connect.Client[message, message]) error {
	s := talk.CallBidiStream(ctx)
	for k := range 20 {
		body := pattern(sizes[k%len(sizes)], k)
		if err := s.Send(&message{Value: body}); err != nil {
			return err
		}
		if m, err := s.Receive(); err != nil || !bytes.Equal(m.Value, body) {
			return fmt.Errorf("message %d of a stream: %w", k, err)
		}
	}
	if err := s.CloseRequest(); err != nil {
		return err
	}
	if _, err := s.Receive(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("at the end of a stream: %w", err)
	}
	return s.CloseResponse()
}
