package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// site returns the handler of the net/http servers.
func site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { // while it reads, over HTTP/2
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("/whole", func(w http.ResponseWriter, r *http.Request) { // once it has read all
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Write(b)
	})
	mux.HandleFunc("/ticks", func(w http.ResponseWriter, r *http.Request) {
		for i := range 20 {
			fmt.Fprintf(w, "tick %d\n", i)
			http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // the client has gone away
			gone <- struct{}{}
		case <-time.After(patience):
		}
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gone:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/abort", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "part")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("godat-suites-%d", os.Getpid()))
		os.WriteFile(name, pattern(1<<20, 3), 0o600)
		defer os.Remove(name)
		http.ServeFile(w, r, name)
	})
	mux.HandleFunc("/proxied/", func(w http.ResponseWriter, r *http.Request) {
		local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		to := &url.URL{Scheme: "http", Host: local.String()}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, "/proxied")
		}}).ServeHTTP(w, r)
	})
	return mux
}

var gone = make(chan struct{}, 100)

func serveHTTP() (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: site()}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() error { return stopHTTP(s, served) }, nil
}

// stopHTTP shuts the server down; its connections are idle, so that takes no time.
func stopHTTP(s *http.Server, served <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	if err := <-served; err != http.ErrServerClosed {
		return err
	}
	return nil
}

func useHTTP(t *testing.T, address string) {
	tr := &http.Transport{DialContext: (&net.Dialer{Timeout: patience}).DialContext, MaxIdleConnsPerHost: 8}
	c := &http.Client{Transport: tr, Timeout: patience}
	browse(t, c, "http://"+address)
	upgrade(t, address)
	expectContinue(t, c, "http://"+address)
	shortConnections(t, "http://"+address)
	begin := time.Now()
	tr.CloseIdleConnections()
	if d := time.Since(begin); d > 4*time.Second {
		t.Errorf("CloseIdleConnections took %v", d)
	}
}

// browse uses all parts of the site that every version of HTTP supports.
func browse(t *testing.T, c *http.Client, base string) {
	parallel(t, 8, func(i int) error {
		for k := range 12 {
			path := []string{"/echo", "/proxied/whole"}[k%2]
			body := pattern(sizes[k/2%len(sizes)], i)
			r, err := c.Post(base+path, "application/octet-stream", bytes.NewReader(body))
			if err != nil {
				return err
			}
			got, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				return fmt.Errorf("%s of %d bytes: %d come back, status %s, %v", path, len(body), len(got), r.Status, err)
			}
		}
		return nil
	})
	if got := get(t, c, base+"/ticks"); strings.Count(got, "\n") != 20 {
		t.Errorf("ticks: %q", got)
	}
	if got := get(t, c, base+"/file"); got != string(pattern(1<<20, 3)) {
		t.Errorf("file: %d bytes", len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", base+"/slow", nil)
	must(t, err)
	if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
	get(t, c, base+"/gone")
	answer, err := c.Get(base + "/abort")
	if err == nil {
		_, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	if err == nil {
		t.Error("an aborted answer ends without an error")
	}
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Errorf("%s: status %s, %v", url, r.Status, err)
	}
	return string(b)
}

// upgrade sends a request after which client and server use the connection themselves.
func upgrade(t *testing.T, address string) {
	c, err := net.DialTimeout("tcp", address, patience)
	must(t, err)
	defer c.Close()
	io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	head := make([]byte, len("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
	_, err = io.ReadFull(c, head)
	must(t, err)
	in := pattern(500_000, 1)
	go func() {
		c.Write(in)
		c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	out, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(in, out) {
		t.Errorf("hijacked: %d bytes, %v", len(out), err)
	}
}

func expectContinue(t *testing.T, c *http.Client, base string) {
	r, err := http.NewRequest("POST", base+"/echo", strings.NewReader("continued"))
	must(t, err)
	r.Header.Set("Expect", "100-continue")
	answer, err := c.Do(r)
	must(t, err)
	defer answer.Body.Close()
	if b, err := io.ReadAll(answer.Body); string(b) != "continued" {
		t.Errorf("100-continue: %q, %v", b, err)
	}
}

// shortConnections uses a new connection for each request.
func shortConnections(t *testing.T, base string) {
	tr := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: tr, Timeout: patience}
	parallel(t, 4, func(i int) error {
		for range 10 {
			body := pattern(200_000, i)
			r, err := c.Post(base+"/echo", "", bytes.NewReader(body))
			if err != nil {
				return err
			}
			got, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				return fmt.Errorf("%d bytes of %d: %v", len(got), len(body), err)
			}
		}
		return nil
	})
}

func serveHTTP2() (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: site(), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() error { return stopHTTP(s, served) }, nil
}

func useHTTP2(t *testing.T, address string) {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: tr, Timeout: patience}
	r, err := c.Get("http://" + address + "/ticks")
	must(t, err)
	r.Body.Close()
	if r.ProtoMajor != 2 {
		t.Errorf("the server speaks %s", r.Proto)
	}
	browse(t, c, "http://"+address)
	tr.CloseIdleConnections()
}
