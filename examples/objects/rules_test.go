package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/examples/internal/exampletest"
)

// A token has the layout of the wire, and parses as it was written, with a suffix or in capitals.
func TestToken(t *testing.T) {
	exampletest.Inside(t)
	want := token{QPN: 0x010203, GID: cverbs.GID{15: 9}, RKey: 0x04050607, Addr: 0x08, Length: 0x10, Port: 1, LID: 0x0b0c}
	text := "01" + "03020100" + strings.Repeat("00", 15) + "09" + "07060504" + "0800000000000000" + "1000000000000000" +
		"01" + "0c0b"
	assert.Equal(t, want.String(), text)
	for _, s := range []string{text, strings.ToUpper(text), text + ":7f00:10"} {
		got, err := parseToken(s)
		assert.NilError(t, err)
		assert.Equal(t, got, want)
	}
	got, err := parseToken(strings.Repeat("0", 88))
	assert.NilError(t, err)
	assert.Equal(t, got, token{})
	for _, s := range []string{"", text[1:], text + "00", "00" + text[2:], "zz" + text[2:], ":" + text,
		text[:10] + strings.Repeat("00", 16) + text[42:]} {
		_, err := parseToken(s)
		assert.Assert(t, err != nil, "%q", s)
	}
}

// No name of an object leads out of the folder, to another's upload, or to what is no object.
func TestNames(t *testing.T) {
	p := start(t, nil, nil)
	c, _, w := client(t, nil)
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "..", ".part-x"), []byte("part"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "..", "file"), []byte("file"), 0o600))
	assert.NilError(t, os.Symlink("/etc", filepath.Join(p.folder, "link")))
	assert.NilError(t, os.Mkdir(filepath.Join(p.folder, "folder"), 0o700))
	base := strings.TrimSuffix(p.url, "/bucket/")
	for path, want := range map[string]int{"/bucket/../file": 400, "/bucket/%2e%2e/file": 400, "//etc/passwd": 400,
		"/.part-x": 400, "/.part-x/y": 400, "/file": 400, "/bucket/": 400, "/bucket": 400, "/": 400,
		"/bucket/a//b": 400, "/bucket/a/./b": 400, "/bucket/x%00y": 400,
		"/bucket/link/passwd": 404, "/bucket/folder": 404, "/file/x": 404, "/bucket/none": 404} {
		for _, method := range []string{"GET", "PUT"} {
			w.see = func(r *http.Request) { r.URL.Opaque = path } // as it is, without a client's cleaning
			status, _, _ := do(t, c, method, base+"/x/y", nil)
			if method == "PUT" && want == 404 {
				assert.Check(t, status >= 400 || path == "/bucket/none", "PUT %s: %d", path, status)
			} else {
				assert.Check(t, status == want, "%s %s: %d", method, path, status)
			}
		}
	}
}

// Each refusal of the protocol has its status, and the server goes on.
func TestRefusals(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "key"), content(1000), 0o600))
	for _, c := range []struct {
		op     string
		want   int
		change []string
	}{
		{"GET", 501, []string{"Protocol", ""}},
		{"GET", 501, []string{"Protocol", "hipobj-rc-v3"}},
		{"GET", 400, []string{"Token", ""}},
		{"GET", 400, []string{"Token", "00" + strings.Repeat("01", 43)}}, // DC
		{"GET", 400, []string{"Token", "01"}},
		{"GET", 400, []string{"Psn", ""}},
		{"GET", 400, []string{"Psn", "0"}},
		{"GET", 400, []string{"Psn", "1000000"}},
		{"GET", 400, []string{"Psn", "0x1"}},
		{"GET", 400, []string{"Cookie", "00000000"}},
		{"GET", 400, []string{"Cookie", "100000000"}},
		{"GET", 400, []string{"Cookie", strings.Repeat("0", 16) + "1"}},
		{"GET", 400, []string{"Op", ""}},
		{"GET", 400, []string{"Op", "DELETE"}},
		{"GET", 400, []string{"Target", ""}},
		{"GET", 400, []string{"Target", "bucket/key"}},
		{"GET", 400, []string{"Target", "http://x/bucket/key"}},
		{"GET", 400, []string{"Target", "/bucket/../../etc/passwd"}},
		{"GET", 400, []string{"Target", "/bucket/%zz"}},
		{"GET", 501, []string{"Target", "/bucket/key?partNumber=1&uploadId=2"}},
		{"GET", 404, []string{"Target", "/bucket/none"}},
		{"GET", 404, []string{"Target", "/none/key"}},
		{"PUT", 404, []string{"Target", "/none/key"}},
		{"GET", 400, []string{"Size", ""}},
		{"GET", 400, []string{"Size", "0"}},
		{"GET", 400, []string{"Size", "-1"}},
		{"GET", 400, []string{"Size", "1e3"}},
		{"PUT", 413, []string{"Size", "2147483648"}},
		{"PUT", 413, []string{"Size", strings.Repeat("9", 30)}},
		{"PUT", 413, []string{"Size", "2147483647"}}, // more than a client may have
		{"GET", 416, []string{"Size", "1001"}},
		{"GET", 416, []string{"Offset", "1"}},
		{"GET", 416, []string{"Offset", "9223372036854775807"}},
		{"GET", 400, []string{"Offset", "-1"}},
		{"PUT", 400, []string{"Offset", "1"}},
	} {
		x := newPeer(t, d, p, c.op, 1000)
		a, err := x.post(t.Context(), "prepare", x.header, c.change...)
		assert.NilError(t, err)
		assert.Check(t, a.StatusCode == c.want, "%s with %q: %d instead of %d", c.op, c.change, a.StatusCode, c.want)
		marked := a.Header.Get(prefix+"Protocol-Status") == "unsupported"
		assert.Check(t, marked == (c.change[0] == "Protocol"), "%s with %q", c.op, c.change)
		p.idle(t)
	}
	for _, path := range []string{"key", controls + "key"} { // older clients, and other protocols
		c, _, _ := client(t, nil)
		status, h, _ := do(t, c, "PUT", p.url+path, nil, prefix+"Token", token{GID: cverbs.GID{1}}.String()+":1:2")
		assert.Equal(t, status, 501)
		assert.Equal(t, h.Get(prefix+"Reply"), "501")
		assert.Equal(t, h.Get(prefix+"Protocol-Status"), "unsupported")
	}
	x := newPeer(t, d, p, "GET", 1000)
	x.header["Cookie"] = "1"
	a, err := x.post(t.Context(), "nothing", x.header)
	assert.NilError(t, err)
	assert.Equal(t, a.StatusCode, 400)
	c, _, _ := client(t, nil)
	for method, body := range map[string]string{"GET": "", "POST": "body"} {
		status, _, _ := do(t, c, method, strings.TrimSuffix(p.url, "/bucket/")+controls+"prepare", []byte(body),
			prefix+"Protocol", protocol)
		assert.Equal(t, status, 400)
	}
}

// A refused READY leaves the session as it is; a good one serves it, once.
func TestReady(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	want := content(1000)
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "key"), want, 0o600))
	x := newPeer(t, d, p, "GET", 1000)
	header, _ := x.prepare()
	for _, c := range []struct {
		want   int
		change []string
	}{
		{501, []string{"Protocol", ""}},
		{409, []string{"Session", strings.Repeat("0", 32)}},
		{400, []string{"Session", ""}},
		{400, []string{"Cookie", ""}},
		{403, []string{"Cookie", "0badcaff"}},
		{400, []string{"Qpn", ""}},
		{400, []string{"Qpn", "1000000"}},
		{400, []string{"Mr-Addr", ""}},
		{400, []string{"Mr-Rkey", ""}},
		{400, []string{"Mr-Addr", "", "Mr-Rkey", ""}},
		{400, []string{"Mr-Rkey", "100000000"}},
		{400, []string{"Mr-Addr", strings.Repeat("0", 17)}},
	} {
		assert.Check(t, <-x.ready(header, c.change...) == c.want, "%q", c.change)
	}
	a, err := x.post(t.Context(), "cancel", header, "Cookie", "0badcaff")
	assert.NilError(t, err)
	assert.Equal(t, a.StatusCode, 403)
	status := x.ready(header)
	_, err = x.received(x.ctx, cookie)
	assert.NilError(t, err)
	assert.Equal(t, <-status, 200)
	same(t, x.mem[:1000], want)
	assert.Equal(t, <-x.ready(header), 409)
	a, err = x.post(t.Context(), "cancel", header)
	assert.NilError(t, err)
	assert.Equal(t, a.StatusCode, 204)
	p.idle(t)
}

// Everything that a client of other make may send is taken: numbers of 16 digits, capitals, a
// suffix on the token, the zero token, no offset, no memory in the READY of a PUT.
func TestDialects(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	want := content(70_000)
	for i, c := range []struct {
		name           string
		prepare, ready []string
		digits         string
	}{
		{"plain", nil, nil, "%x"},
		{"16 digits", nil, nil, "%016x"},
		{"capitals", []string{"Cookie", "0BADCAFE"}, []string{"Cookie", "0BADCAFE"}, "%X"},
		{"16 digits in capitals", []string{"Cookie", "000000000BADCAFE"}, []string{"Cookie", "BADCAFE"}, "%016X"},
		{"no offset", []string{"Offset", ""}, nil, "%x"},
		{"the zero token", []string{"Token", strings.Repeat("0", 88)}, nil, "%x"},
		{"suffix", []string{"Token", "+:7f0012345678:3e8"}, nil, "%x"},
		{"capital token", []string{"Token", "^"}, nil, "%x"},
		{"a name with a space and a query", []string{"Target", "/bucket/a%20%C3%BC?x-id=PutObject"}, nil, "%x"},
	} {
		for _, op := range []string{"PUT", "GET"} {
			x := newPeer(t, d, p, op, len(want))
			x.header["Target"] = fmt.Sprintf("/bucket/%d", i)
			for k := 0; k+1 < len(c.prepare); k += 2 {
				value := strings.Replace(c.prepare[k+1], "+", x.token().String(), 1)
				x.header[c.prepare[k]] = strings.Replace(value, "^", strings.ToUpper(x.token().String()), 1)
			}
			header, a := x.prepare()
			header["Qpn"] = fmt.Sprintf(c.digits, x.qp.Num())
			header["Mr-Addr"] = fmt.Sprintf(c.digits, x.mr.Addr())
			header["Mr-Rkey"] = fmt.Sprintf(c.digits, x.mr.RKey())
			if op == "PUT" && i%2 == 1 {
				header["Mr-Addr"], header["Mr-Rkey"] = "", ""
			}
			if op == "PUT" {
				copy(x.mem, want)
			} else {
				clear(x.mem)
			}
			status := x.ready(header, c.ready...)
			var err error
			if op == "PUT" {
				err = x.send(a, int64(len(want)), 0, rkeyOf(a), cookie)
			} else {
				_, err = x.received(x.ctx, cookie)
			}
			assert.NilError(t, err, "%s: %s", c.name, op)
			assert.Equal(t, <-status, 200, "%s: %s", c.name, op)
			if op == "GET" {
				same(t, x.mem[:len(want)], want)
			}
		}
	}
}

// A PUT of a peer that does not keep to the protocol fails, with what it has stored before in
// place.
func TestHostilePut(t *testing.T) {
	d := device(t)
	p := start(t, d, func(s *Server) { s.TransferTime = 2 * time.Second })
	old := []byte("the old object")
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "key"), old, 0o600))
	victim := newPeer(t, d, p, "PUT", 70_000)
	victim.header["Target"] = "/bucket/victim"
	hold, v := victim.prepare()
	writes := func(to *http.Response, n, offset int64, cookie uint32) func(*peer, *http.Response) error {
		return func(x *peer, own *http.Response) error {
			if to == nil {
				to = own
			}
			return x.send(to, n, offset, rkeyOf(to), cookie)
		}
	}
	for _, c := range []struct {
		name string
		want int
		do   func(x *peer, a *http.Response) error
		fail bool
	}{
		{"another cookie", 502, writes(nil, 70_000, 0, 7), false},
		{"too few bytes", 502, writes(nil, 69_999, 0, cookie), false},
		{"too many bytes", 502, writes(nil, 70_001, 0, cookie), false},
		{"before its memory", 502, writes(nil, 70_000, -1, cookie), true},
		{"beyond its memory", 502, writes(nil, 70_000, 1<<17-1, cookie), true},
		{"another's memory", 502, writes(v, 70_000, 0, cookie), true},
		{"a Send", 502, func(x *peer, a *http.Response) error {
			_, err := x.qp.PostSend([]cverbs.SendWR{{ID: uint64(x.psn), Opcode: cverbs.OpSendWithImm, Imm: cookie, NumSGE: 1}},
				[]cverbs.SGE{{Addr: x.mr.Addr(), Length: 70_000, LKey: x.mr.LKey()}})
			assert.NilError(t, err)
			_, err = x.wait(x.ctx)
			return err
		}, true},
		{"nothing", 408, func(x *peer, a *http.Response) error { return nil }, false},
	} {
		x := newPeer(t, d, p, "PUT", 70_000)
		header, a := x.prepare()
		status := x.ready(header)
		err := c.do(x, a)
		assert.Check(t, (err != nil) == c.fail, "%s: %v", c.name, err)
		if got := <-status; c.fail { // the device may or may not tell the server that it refused its peer
			assert.Check(t, got == 502 || got == 408, "%s: %d", c.name, got)
		} else {
			assert.Check(t, got == c.want, "%s: %d", c.name, got)
		}
		got, err := os.ReadFile(filepath.Join(p.folder, "key"))
		assert.NilError(t, err)
		same(t, got, old)
	}
	copy(victim.mem, content(70_000)) // is served all the same
	status := victim.ready(hold)
	assert.NilError(t, victim.send(v, 70_000, 0, rkeyOf(v), cookie))
	assert.Equal(t, <-status, 200)
	parts, err := filepath.Glob(filepath.Join(p.folder, "..", ".part-*"))
	assert.NilError(t, err)
	assert.Equal(t, len(parts), 0)
	p.idle(t)
}

// The client of a GET reaches no memory of the server, and a GET to memory that does not exist
// fails.
func TestHostileGet(t *testing.T) {
	d := device(t)
	p := start(t, d, func(s *Server) { s.TransferTime = 2 * time.Second })
	want := content(1000)
	assert.NilError(t, os.WriteFile(filepath.Join(p.folder, "key"), want, 0o600))
	for _, op := range []cverbs.WROpcode{cverbs.OpRDMAWrite, cverbs.OpRDMARead} {
		x := newPeer(t, d, p, "GET", 1000)
		header, a := x.prepare()
		f := &fields{Header: a.Header}
		_, err := x.qp.PostSend([]cverbs.SendWR{{ID: uint64(x.psn), Opcode: op, NumSGE: 1,
			RemoteAddr: f.hex("Mr-Addr", 0, 1<<64-1), RKey: rkeyOf(a)}},
			[]cverbs.SGE{{Addr: x.mr.Addr(), Length: 1000, LKey: x.mr.LKey()}})
		assert.NilError(t, err)
		status := x.ready(header)
		clear(x.mem)
		wc, err := x.wait(x.ctx)
		assert.Check(t, err != nil || wc.Opcode == cverbs.WCRecvRDMAWithImm, "%v: %v", op, wc)
		if got := <-status; got == 200 { // the server was faster
			same(t, x.mem[:1000], want)
		}
		p.idle(t)
	}
	x := newPeer(t, d, p, "GET", 1000)
	header, _ := x.prepare()
	assert.Equal(t, <-x.ready(header, "Mr-Rkey", "1"), 502)
	p.idle(t)
}

// No client has more transfers or bytes than its share, and all have no more than the server gives.
// What a peer does not use is free again after ReadyTime.
func TestLimits(t *testing.T) {
	d := device(t)
	p := start(t, d, func(s *Server) {
		s.Authorize = func(r *http.Request) (string, error) { return r.Header.Get("From"), nil }
		s.Sessions, s.OwnerSessions, s.OwnerBytes, s.ReadyTime = 5, 3, 1<<19, time.Second
	})
	x := newPeer(t, d, p, "PUT", 1)
	signed := ""
	for name := range x.header {
		signed += ";" + strings.ToLower(prefix+name)
	}
	x.plain = map[string]string{"Authorization": "Credential=x, SignedHeaders=host" + signed + ", Signature=y"}
	put := func(owner string, n int) int {
		x.plain["From"] = owner
		a, err := x.post(t.Context(), "prepare", x.header, "Size", fmt.Sprint(n))
		assert.NilError(t, err)
		return a.StatusCode
	}
	a, err := x.post(t.Context(), "prepare", x.header)
	assert.NilError(t, err)
	session := map[string]string{"Protocol": protocol, "Session": a.Header.Get(prefix + "Session"),
		"Cookie": x.header["Cookie"], "Qpn": "1", "Size": "", "Op": "", "Target": "", "Offset": "", "Token": "", "Psn": ""}
	x.plain["From"] = "b"
	x.plain["Authorization"] = strings.Replace(x.plain["Authorization"], "=host",
		"=host;x-amz-rdma-session;x-amz-rdma-qpn", 1)
	for _, what := range []string{"ready", "cancel"} { // of another owner
		a, err = x.post(t.Context(), what, session)
		assert.NilError(t, err)
		assert.Equal(t, a.StatusCode, map[string]int{"ready": 409, "cancel": 204}[what])
		assert.Equal(t, len(p.sessions), 1)
	}
	p.idle(t)
	assert.Equal(t, put("a", 1<<19+1), 413)
	assert.Equal(t, put("a", 1<<18), 200)
	assert.Equal(t, put("a", 1<<17+1), 200) // has 1<<18, too
	assert.Equal(t, put("a", 1), 429)
	p.idle(t) // after ReadyTime
	for range 3 {
		assert.Equal(t, put("a", 1), 200)
	}
	assert.Equal(t, put("a", 1), 429)
	assert.Equal(t, put("b", 1), 200)
	assert.Equal(t, put("b", 1), 200)
	assert.Equal(t, put("b", 1), 503)
	assert.Equal(t, put("c", 1), 503)
	p.idle(t)
	d.limit = 1 << 18
	assert.Equal(t, put("a", 1<<18+1), 503) // all memory together has a limit, too
	p.idle(t)
}

// A client that goes away during its transfer, or before it, leaves nothing behind.
func TestVanish(t *testing.T) {
	d := device(t)
	p := start(t, d, nil)
	for range 3 {
		x := newPeer(t, d, p, "PUT", 1000)
		header, _ := x.prepare()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := x.post(ctx, "ready", header); done <- err }()
		p.inTransfer(t)
		a, err := x.post(t.Context(), "cancel", header) // changes nothing: its connection ends the transfer
		assert.NilError(t, err)
		assert.Equal(t, a.StatusCode, 204)
		p.mu.Lock()
		assert.Equal(t, len(p.sessions), 1)
		p.mu.Unlock()
		cancel()
		assert.Assert(t, <-done != nil)
		p.idle(t)
	}
	x := newPeer(t, d, p, "PUT", 1000)
	header, _ := x.prepare()
	a, err := x.post(t.Context(), "cancel", header)
	assert.NilError(t, err)
	assert.Equal(t, a.StatusCode, 204)
	p.idle(t)
	x, y := newPeer(t, d, p, "PUT", 1000), newPeer(t, d, p, "PUT", 1000)
	header, _ = x.prepare()
	status := x.ready(header)
	p.inTransfer(t)
	y.prepare()
	p.Close() // ends what waits, and what is in transfer
	assert.Equal(t, <-status, 502)
	a, err = x.post(t.Context(), "prepare", x.header)
	assert.NilError(t, err)
	assert.Equal(t, a.StatusCode, 503)
}

// No client gets bytes of another's object from staging memory.
func TestClear(t *testing.T) {
	d := device(t)
	s, err := d.open("one", 100, cverbs.GID{}, 0)
	assert.NilError(t, err)
	copy(s.mem, "secret")
	s.close()
	again, err := d.open("two", 100, cverbs.GID{}, 0)
	assert.NilError(t, err)
	defer again.close()
	assert.Equal(t, again, s)
	assert.Equal(t, bytes.Count(again.mem, []byte{0}), len(again.mem))
}
