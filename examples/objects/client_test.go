package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/examples/internal/exampletest"
)

// sign signs a request by SigV4, with the key "secret": the hook of a client.
func sign(r *http.Request) error {
	r.Header.Set("X-Amz-Date", "20260101T000000Z")
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	names := []string{"host"}
	for name := range r.Header {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	signed := strings.Join(names, ";")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=me/20260101/x/s3/aws4_request, SignedHeaders="+signed+
		", Signature="+signature(r, names))
	return nil
}

func signature(r *http.Request, names []string) string {
	text := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n"
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		text += name + ":" + strings.TrimSpace(value) + "\n"
	}
	text += "\n" + strings.Join(names, ";") + "\n" + r.Header.Get("X-Amz-Content-Sha256")
	sum := func(key []byte, s string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(s))
		return h.Sum(nil)
	}
	key := []byte("AWS4secret")
	for _, part := range []string{"20260101", "x", "s3", "aws4_request"} {
		key = sum(key, part)
	}
	return fmt.Sprintf("%x", sum(key, fmt.Sprintf("AWS4-HMAC-SHA256\n20260101T000000Z\n20260101/x/s3/aws4_request\n%x",
		sha256.Sum256([]byte(text)))))
}

// verify is the hook of a server.
func verify(r *http.Request) (string, error) {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	signed, got, _ := strings.Cut(rest, ", Signature=")
	if got == "" || !hmac.Equal([]byte(got), []byte(signature(r, strings.Split(signed, ";")))) {
		return "", errors.New("the signature is wrong")
	}
	return "me", nil
}

// Where the server wants signatures, Transport signs its own requests by the hook; each header of
// the protocol must be signed.
func TestSigned(t *testing.T) {
	d := device(t)
	p := start(t, d, func(s *Server) { s.Authorize = verify })
	c, tr, w := client(t, d)
	tr.Sign = sign
	want := content(100_000)
	r, err := http.NewRequestWithContext(t.Context(), "PUT", p.url+"key", bytes.NewReader(want))
	assert.NilError(t, err)
	a, err := c.Do(r)
	assert.NilError(t, err)
	a.Body.Close()
	assert.Equal(t, a.StatusCode, 200)
	status, _, got := do(t, c, "GET", p.url+"key", nil)
	assert.Equal(t, status, 200)
	same(t, got, want)
	assert.Equal(t, w.did["POST ready"], 2)

	for _, bad := range []func(*http.Request) error{
		func(r *http.Request) error { return nil }, // not signed
		func(r *http.Request) error { sign(r); r.Header.Del("Authorization"); return nil },
		func(r *http.Request) error { sign(r); r.Header.Set("X-Amz-Date", "now"); return nil },
		func(r *http.Request) error { sign(r); r.Header.Set(prefix+"Size", "1"); return nil }, // another value than signed
		func(r *http.Request) error { // one header is not signed
			size := r.Header.Get(prefix + "Size")
			r.Header.Del(prefix + "Size")
			sign(r)
			r.Header.Set(prefix+"Size", size)
			return nil
		},
	} {
		tr.Sign = bad
		r, err := http.NewRequestWithContext(t.Context(), "PUT", p.url+"other", bytes.NewReader(want))
		assert.NilError(t, err)
		a, err := c.Do(r)
		assert.NilError(t, err)
		a.Body.Close()
		assert.Equal(t, a.StatusCode, 403)
	}
	_, err = os.Stat(filepath.Join(p.folder, "other"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	tr.Sign = func(*http.Request) error { return errors.New("no key") }
	r, err = http.NewRequestWithContext(t.Context(), "PUT", p.url+"other", bytes.NewReader(want))
	assert.NilError(t, err)
	_, err = c.Do(r)
	assert.ErrorContains(t, err, "no key")
	p.idle(t)
}

// A server that does not keep to the protocol gets an error to the caller, within the time limit,
// and the client's memory is free again.
func TestHostileServer(t *testing.T) {
	d := device(t)
	good := token{QPN: 5, GID: d.gids[0].GID, Port: 1}.String()
	answer := map[string]string{"Protocol": protocol, "Reply": "200:" + good, "Session": strings.Repeat("0", 32),
		"Psn": "1", "Mr-Addr": "1000", "Mr-Rkey": "1"}
	silent := make(chan struct{})
	defer close(silent)
	for _, c := range []struct {
		what string
		omit string
		with string
		end  func(w http.ResponseWriter, r *http.Request) // of READY
		err  string
	}{
		{"no protocol", "Protocol", "", nil, "the answer to PREPARE"},
		{"no token", "Reply", "", nil, "the answer to PREPARE"},
		{"a token of zeroes", "Reply", "200:" + strings.Repeat("0", 88), nil, "the answer to PREPARE"},
		{"no session", "Session", "", nil, "the answer to PREPARE"},
		{"no PSN", "Psn", "0", nil, "the answer to PREPARE"},
		{"no memory", "Mr-Rkey", "", nil, "the answer to PREPARE"},
		{"no answer", "", "", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-silent:
			case <-r.Context().Done():
			}
		}, "deadline exceeded"},
		{"success without a transfer", "", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(prefix+"Protocol", protocol)
			w.Header().Set(prefix+"Cookie", r.Header.Get(prefix+"Cookie"))
		}, "deadline exceeded"},
		{"another's success", "", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(prefix+"Protocol", protocol)
			w.Header().Set(prefix+"Cookie", "00000001")
		}, "another transfer"},
		{"an end", "", "", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		cancelled := make(chan string, 1)
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch strings.TrimPrefix(r.URL.Path, controls) {
			case "prepare":
				for name, value := range answer {
					if name == c.omit {
						value = c.with
					}
					if value != "" {
						w.Header().Set(prefix+name, value)
					}
				}
			case "ready":
				c.end(w, r)
			case "/b/k": // HEAD
				w.Header().Set("Content-Length", "4")
			case "cancel":
				cancelled <- r.Header.Get(prefix + "Session")
			}
		}))
		client, tr, _ := client(t, d)
		tr.Timeout = time.Second
		_, err := client.Post(h.URL, "", nil) // any other request is the server's
		assert.NilError(t, err)
		method := "PUT"
		if c.end != nil { // the writes of a PUT might fail before the answer comes
			method = "GET"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/b/k", strings.NewReader("body"))
		assert.NilError(t, err)
		_, err = client.Do(r)
		assert.Check(t, err != nil && strings.Contains(err.Error(), c.err), "%s: %v", c.what, err)
		if c.omit != "Session" {
			assert.Equal(t, <-cancelled, answer["Session"], c.what)
		}
		h.Close()
	}
	assert.Equal(t, int64(len(d.free))<<16, d.bytes) // and all are free
}

// A PUT whose body ends early stores nothing, and a caller that gives up waits no longer.
func TestEarlyEnd(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	c, _, w := client(t, d)
	r, err := http.NewRequestWithContext(t.Context(), "PUT", p.url+"key", strings.NewReader("short"))
	assert.NilError(t, err)
	r.ContentLength = 10
	_, err = c.Do(r)
	assert.ErrorContains(t, err, "unexpected EOF")
	ctx, cancel := context.WithCancel(t.Context())
	w.see = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "ready") {
			cancel()
		}
	}
	r, err = http.NewRequestWithContext(ctx, "PUT", p.url+"key", strings.NewReader("body"))
	assert.NilError(t, err)
	_, err = c.Do(r)
	assert.ErrorIs(t, err, context.Canceled)
	p.idle(t)
	_, err = os.Stat(filepath.Join(p.folder, "key"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// The entry of the GID table is of the kind of the peer's address.
func TestGID(t *testing.T) {
	exampletest.Inside(t)
	gid := func(s string) cverbs.GID { return netip.MustParseAddr(s).As16() }
	d := &Device{}
	for i, s := range []string{"fe80::1", "::ffff:10.0.0.1", "fd00::1"} {
		d.gids = append(d.gids, cverbs.GIDEntry{Index: i, Port: 1, GID: gid(s), Type: cverbs.GIDTypeRoCEv2})
	}
	for peer, want := range map[string]int{"fe80::2": 0, "::ffff:10.0.0.2": 1, "fd00::2": 2} {
		assert.Equal(t, d.gid(gid(peer)).Index, want, peer)
	}
	assert.Equal(t, d.gid(cverbs.GID{}).Index, 1) // a client does not know its peer's yet
	d.gids = d.gids[:1]
	assert.Equal(t, d.gid(gid("::ffff:10.0.0.2")).Index, 0)
}
