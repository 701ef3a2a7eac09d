package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/examples/internal/exampletest"
)

// peer is a client of the protocol that sends what a test wants.
type peer struct {
	*stage
	t      testing.TB
	ctx    context.Context
	place  place
	header map[string]string // of PREPARE
	plain  map[string]string // headers that are not the protocol's
}

const cookie = 0x0badcafe

// newPeer returns a peer that asks for the first n bytes of the object key, or stores them.
func newPeer(t testing.TB, d *Device, p place, op string, n int) *peer {
	t.Helper()
	s, err := d.open("peer", int64(n), cverbs.GID{}, cverbs.AccessRemoteWrite)
	assert.NilError(t, err)
	t.Cleanup(s.close)
	assert.NilError(t, s.expect())
	ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
	t.Cleanup(cancel)
	return &peer{s, t, ctx, p, map[string]string{"Protocol": protocol, "Token": s.token().String(),
		"Psn": fmt.Sprintf("%06x", s.psn), "Cookie": fmt.Sprintf("%08x", cookie), "Op": op, "Target": "/bucket/key",
		"Size": fmt.Sprint(n), "Offset": "0"}, nil}
}

// post sends a request of the protocol. Pairs of changes replace headers; "" removes one.
func (p *peer) post(ctx context.Context, what string, header map[string]string,
	changes ...string) (*http.Response, error) {
	header = maps.Clone(header)
	for i := 0; i < len(changes); i += 2 {
		header[changes[i]] = changes[i+1]
	}
	r, err := http.NewRequestWithContext(ctx, "POST", strings.TrimSuffix(p.place.url, "/bucket/")+controls+what, nil)
	assert.NilError(p.t, err)
	for name, value := range header {
		if value != "" {
			r.Header.Set(prefix+name, value)
		}
	}
	for name, value := range p.plain {
		r.Header.Set(name, value)
	}
	a, err := http.DefaultClient.Do(r)
	if err == nil {
		io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
	return a, err
}

// prepare sends PREPARE, connects, and returns the headers of READY.
func (p *peer) prepare(changes ...string) (ready map[string]string, a *http.Response) {
	p.t.Helper()
	a, err := p.post(p.ctx, "prepare", p.header, changes...)
	assert.NilError(p.t, err)
	assert.Equal(p.t, a.StatusCode, 200)
	f := &fields{Header: a.Header}
	to, err := parseToken(strings.TrimPrefix(f.text("Reply"), "200:"))
	assert.NilError(p.t, err)
	assert.NilError(p.t, p.connect(to, to.QPN, uint32(f.hex("Psn", 1, 1<<24-1))))
	ready = map[string]string{"Protocol": protocol, "Session": f.text("Session"), "Cookie": p.header["Cookie"],
		"Qpn": fmt.Sprintf("%x", p.qp.Num()), "Mr-Addr": fmt.Sprintf("%x", p.mr.Addr()),
		"Mr-Rkey": fmt.Sprintf("%x", p.mr.RKey())}
	assert.NilError(p.t, f.err)
	return ready, a
}

// ready sends READY in a goroutine and returns a channel with the status of the answer.
func (p *peer) ready(header map[string]string, changes ...string) <-chan int {
	status := make(chan int, 1)
	go func() {
		a, err := p.post(p.ctx, "ready", header, changes...)
		if err != nil {
			p.t.Error(err)
			a = &http.Response{}
		}
		status <- a.StatusCode
	}()
	return status
}

// send writes n bytes to the server's memory, at an offset, with a cookie.
func (p *peer) send(a *http.Response, n, offset int64, rkey, cookie uint32) error {
	f := &fields{Header: a.Header}
	return p.write(p.ctx, n, f.hex("Mr-Addr", 0, 1<<64-1)+uint64(offset), rkey, cookie)
}

func rkeyOf(a *http.Response) uint32 {
	f := &fields{Header: a.Header}
	return uint32(f.hex("Mr-Rkey", 0, 1<<32-1))
}

// idle fails unless the server ends all its transfers and has their memory back.
func (p place) idle(t testing.TB) {
	t.Helper()
	p.over.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.Equal(t, len(p.sessions), 0)
}

// inTransfer waits until the READY of each session has come.
func (p place) inTransfer(t testing.TB) {
	t.Helper()
	for until, done := time.Now().Add(exampletest.Patience), false; !done; {
		assert.Assert(t, time.Now().Before(until))
		p.mu.Lock()
		done = true
		for _, s := range p.sessions {
			done = done && !s.waiting
		}
		p.mu.Unlock()
	}
}
