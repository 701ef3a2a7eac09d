package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: objects DEVICE serve") }

// deviceName is the device of GODAT_TEST_DEVICE as the command line takes it.
func deviceName(t testing.TB) string {
	t.Helper()
	name := exampletest.Device(t)
	if strings.HasPrefix(name, "tcp") || strings.HasPrefix(name, "siw") {
		t.Skip("the protocol is for InfiniBand and RoCE")
	}
	return name
}

// device opens the device for a test.
func device(t testing.TB) *Device {
	t.Helper()
	d, err := open(deviceName(t))
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, d.Close()) })
	return d
}

// place is a server in this process.
type place struct {
	*Server
	url    string // of the bucket
	folder string // of the bucket
}

// start starts a server, which setup may change before.
func start(t testing.TB, d *Device, setup func(*Server)) place {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "bucket"), 0o700))
	root, err := os.OpenRoot(dir)
	assert.NilError(t, err)
	s := NewServer(root, d)
	if setup != nil {
		setup(s)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); h.Close(); root.Close() })
	return place{s, h.URL + "/bucket/", filepath.Join(dir, "bucket")}
}

// wire is the Base of a Transport in tests. It counts the requests by method and path.
type wire struct {
	http.Transport
	mu  sync.Mutex
	did map[string]int
	see func(*http.Request)
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if w.did == nil {
		w.did = map[string]int{}
	}
	w.did[r.Method+" "+strings.TrimPrefix(r.URL.Path, controls)]++
	if w.see != nil {
		w.see(r)
	}
	w.mu.Unlock()
	return w.Transport.RoundTrip(r)
}

// client returns a client with its Transport and what it sends.
func client(t testing.TB, d *Device) (*http.Client, *Transport, *wire) {
	w := &wire{}
	t.Cleanup(w.CloseIdleConnections)
	tr := &Transport{Base: w, Device: d}
	return &http.Client{Transport: tr}, tr, w
}

func content(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// do sends a request and returns status, header and body.
func do(t testing.TB, c *http.Client, method, url string, body []byte, headers ...string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	assert.NilError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := c.Do(r)
	assert.NilError(t, err)
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	assert.NilError(t, err)
	return a.StatusCode, a.Header, got
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	assert.Assert(t, bytes.Equal(got, want), "%d bytes have become %d others", len(want), len(got))
}

var sizes = []int{1, 4096, 1 << 16, 1<<16 + 1, 3<<20 + 7}

// Objects of all sizes go to the server and come back, whole and in part, and no body by HTTP. An
// empty object has no transfer.
func TestObjects(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	c, _, w := client(t, d)
	for _, n := range sizes {
		want, url := content(n), p.url+fmt.Sprintf("of size/%d+ü", n)
		status, h, _ := do(t, c, "PUT", url, want)
		assert.Equal(t, status, 200)
		stored, err := os.ReadFile(filepath.Join(p.folder, "of size", fmt.Sprintf("%d+ü", n)))
		assert.NilError(t, err)
		same(t, stored, want)
		status, got, body := do(t, c, "GET", url, nil)
		assert.Equal(t, status, 200)
		assert.Equal(t, got.Get("Etag"), h.Get("Etag"))
		assert.Equal(t, got.Get("Content-Length"), fmt.Sprint(n))
		same(t, body, want)
		from, to := n/3, n/2
		status, got, body = do(t, c, "GET", url, nil, "Range", fmt.Sprintf("bytes=%d-%d", from, to))
		assert.Equal(t, status, 206)
		assert.Equal(t, got.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", from, to, n))
		same(t, body, want[from:to+1])
		_, _, body = do(t, c, "GET", url, nil, "Range", fmt.Sprintf("bytes=%d-", n-1))
		same(t, body, want[n-1:])
		_, _, body = do(t, c, "GET", url, nil, "Range", fmt.Sprintf("bytes=0-%d", 2*n))
		same(t, body, want)
	}
	assert.Equal(t, w.did["POST ready"], 5*len(sizes))
	for request, times := range w.did {
		assert.Assert(t, !strings.HasPrefix(request, "GET") && !strings.HasPrefix(request, "PUT"), "%s %d times", request,
			times)
	}
	status, _, body := do(t, c, "GET", p.url+"of size/4096+ü", nil, "Range", "bytes=-5") // by HTTP
	assert.Equal(t, status, 206)
	same(t, body, content(4096)[4091:])
	do(t, c, "PUT", p.url+"empty", nil)
	status, _, body = do(t, c, "GET", p.url+"empty", nil)
	assert.Equal(t, status, 200)
	assert.Equal(t, len(body), 0)
	assert.Equal(t, w.did["POST ready"], 5*len(sizes))
}

// What a server refuses comes to the caller as the server's answer.
func TestAnswers(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	c, _, _ := client(t, d)
	status, _, body := do(t, c, "GET", p.url+"nothing", nil)
	assert.Equal(t, status, 404)
	assert.Assert(t, bytes.Contains(body, []byte("<Code>NoSuchKey</Code>")), "%s", body)
	status, _, _ = do(t, c, "PUT", strings.TrimSuffix(p.url, "bucket/")+"no/bucket", []byte("x"))
	assert.Equal(t, status, 404)
	do(t, c, "PUT", p.url+"small", []byte("small"))
	status, _, _ = do(t, c, "GET", p.url+"small", nil, "Range", "bytes=5-9")
	assert.Equal(t, status, 416)
	status, _, _ = do(t, c, "GET", p.url+"small?versionId=1", nil)
	assert.Equal(t, status, 501)
	status, _, _ = do(t, c, "DELETE", p.url+"small", nil)
	assert.Equal(t, status, 405)
}

// Where the server has no RDMA, both ends speak plain HTTP; the server is asked once.
func TestPlain(t *testing.T) {
	d := device(t)
	p := start(t, nil, nil)
	c, _, w := client(t, d)
	for _, n := range sizes {
		status, _, _ := do(t, c, "PUT", p.url+"x", content(n))
		assert.Equal(t, status, 200)
		status, _, body := do(t, c, "GET", p.url+"x", nil)
		assert.Equal(t, status, 200)
		same(t, body, content(n))
	}
	assert.Equal(t, w.did["POST prepare"], 1)
	// The same the other way: a GET is declined first, and a client without a device asks nobody.
	c, _, w = client(t, d)
	_, _, body := do(t, c, "GET", p.url+"x", nil)
	same(t, body, content(sizes[len(sizes)-1]))
	assert.Equal(t, w.did["POST prepare"], 1)
	c, _, w = client(t, nil)
	_, _, body = do(t, c, "GET", p.url+"x", nil)
	same(t, body, content(sizes[len(sizes)-1]))
	assert.Equal(t, w.did["POST prepare"], 0)
}

// Many clients at a time get their own bytes.
func TestMany(t *testing.T) {
	d := device(t)
	p := start(t, d, func(s *Server) { s.OwnerSessions = 64 })
	c, _, _ := client(t, d)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			url, want := p.url+fmt.Sprint(i), content(100_000+i)
			for range 5 {
				do(t, c, "PUT", url, want)
				_, _, got := do(t, c, "GET", url, nil)
				same(t, got, want)
			}
		})
	}
	all.Wait()
}

// A request with a header that RDMA does not carry goes by HTTP, so that nothing is lost.
func TestCarried(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	c, _, w := client(t, d)
	do(t, c, "PUT", p.url+"x", []byte("body"), "X-Amz-Meta-Colour", "green")
	do(t, c, "GET", p.url+"x", nil, "If-None-Match", `"y"`)
	assert.Equal(t, w.did["POST prepare"], 0)
}

// The staging memory has a limit, and what is free makes place for another size.
func TestPool(t *testing.T) {
	d := device(t)
	d.limit = 1 << 20
	p := start(t, d, func(s *Server) { s.OwnerBytes = 1 << 20 })
	c, _, _ := client(t, d)
	for _, n := range []int{300_000, 1000, 400_000, 70_000} { // a stage at either end
		status, _, _ := do(t, c, "PUT", p.url+"x", content(n))
		assert.Equal(t, status, 200)
		assert.Assert(t, d.bytes <= d.limit)
	}
	r, err := http.NewRequestWithContext(t.Context(), "PUT", p.url+"x", bytes.NewReader(content(1<<20+1)))
	assert.NilError(t, err)
	_, err = c.Do(r)
	assert.Assert(t, errors.Is(err, errFull), "%v", err)
}

// Server and client in processes of their own.
func TestProcesses(t *testing.T) {
	name := deviceName(t)
	dir := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "bucket"), 0o700))
	file := filepath.Join(dir, "file")
	server := exampletest.Start(t, name, "serve", "127.0.0.1:0", dir)
	url := server.Address(t) + "/bucket/key"
	for _, n := range sizes {
		assert.NilError(t, os.WriteFile(file, content(n), 0o600))
		exampletest.Run(t, name, "put", url, file)
		assert.Equal(t, exampletest.Run(t, name, "get", url), string(content(n)))
	}
	d := device(t)
	c, _, w := client(t, d)
	do(t, c, "PUT", url, content(99))
	_, _, body := do(t, c, "GET", url, nil)
	same(t, body, content(99))
	assert.Equal(t, w.did["POST ready"], 2)
	server.Interrupt(t)
	server.Wait(t)
}

// BenchmarkObjects measures PUT and GET over RDMA beside plain HTTP, with the server in a process
// of its own and the folder in memory, if there is /dev/shm.
func BenchmarkObjects(b *testing.B) {
	name := deviceName(b)
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "objects")
	assert.NilError(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(b, os.Mkdir(filepath.Join(dir, "bucket"), 0o700))
	url := exampletest.Start(b, name, "serve", "127.0.0.1:0", dir).Address(b) + "/bucket/key"
	d := device(b)
	for _, n := range []int{4 << 10, 1 << 20, 16 << 20, 256 << 20} {
		body := content(n)
		for _, method := range []string{"PUT", "GET"} {
			for by, d := range map[string]*Device{"RDMA": d, "HTTP": nil} {
				c, _, w := client(b, d)
				b.Run(fmt.Sprintf("%s/%dKiB/%s", method, n>>10, by), func(b *testing.B) {
					b.SetBytes(int64(n))
					for b.Loop() {
						r, err := http.NewRequestWithContext(b.Context(), method, url, bytes.NewReader(body))
						assert.NilError(b, err)
						if method == "GET" {
							r.Body, r.ContentLength = nil, 0
						}
						a, err := c.Do(r)
						assert.NilError(b, err)
						got, err := io.Copy(io.Discard, a.Body)
						assert.NilError(b, err)
						a.Body.Close()
						assert.Assert(b, a.StatusCode == 200 && (method == "PUT" || got == int64(n)))
					}
					assert.Equal(b, w.did["POST ready"] > 0, d != nil)
				})
			}
		}
	}
}
