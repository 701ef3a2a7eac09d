package rdmanet_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// serve starts a server of net/http on a device, with TLS, and returns it with a client.
func serve(t *testing.T, dev string, http2 bool, h http.HandlerFunc) (*httptest.Server, *http.Client) {
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = listen(t, dev, rdmanet.ListenConfig{})
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	d := dialer(dev)
	client := s.Client()
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "rdma", s.Listener.Addr().String())
	}
	s.URL = "https://example.com" // for which httptest has a certificate, on every device
	return s, client
}

// TestHTTP posts bodies to an echo server over HTTP/1 and HTTP/2, both with TLS.
func TestHTTP(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for version, http2 := range map[int]bool{1: false, 2: true} {
			t.Run(fmt.Sprintf("HTTP%d", version), func(t *testing.T) {
				s, client := serve(t, dev, http2, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body) // HTTP/1 ends the request's body with the first answer
					w.Write(body)
				})
				defer client.CloseIdleConnections()
				var all sync.WaitGroup
				calls, size := 8, 200_000
				if testing.Short() { // TLS is slow in the virtual machine
					calls, size = 3, 50_000
				}
				for i := range calls {
					all.Go(func() {
						body := pattern(size, byte(i))
						r, err := client.Post(s.URL, "application/octet-stream", bytes.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						defer r.Body.Close()
						got, err := io.ReadAll(r.Body)
						if err != nil || !bytes.Equal(got, body) || r.ProtoMajor != version {
							t.Errorf("%v: %d bytes of %d, %v", r.Proto, len(got), len(body), err)
						}
					})
				}
				all.Wait()
			})
		}
	})
}

// TestTLS ends the stream of crypto/tls in good order, by half close.
func TestTLS(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		s := httptest.NewUnstartedServer(nil)
		s.StartTLS() // for its certificate
		defer s.Close()
		a, b := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		config.ServerName = "example.com"
		client, server := tls.Client(a, config), tls.Server(b, &tls.Config{Certificates: s.TLS.Certificates})
		data := pattern(500_000, 9)
		sent := make(chan error, 1)
		go func() {
			_, err := client.Write(data)
			if err == nil {
				err = client.CloseWrite()
			}
			sent <- err
		}()
		got, err := io.ReadAll(server)
		assert.NilError(t, err)
		assert.NilError(t, <-sent)
		assert.Assert(t, bytes.Equal(got, data))
	})
}
