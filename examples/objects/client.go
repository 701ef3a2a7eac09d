package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
)

// Transport is an http.RoundTripper that moves the bodies of GET and PUT by RDMA if the server
// speaks hipobj-rc-v2. All else goes over plain HTTP, and all to a server that answers 501. It is
// safe for concurrent use; its fields are set before.
type Transport struct {
	Base    http.RoundTripper         // for plain HTTP
	Device  *Device                   // nil: plain HTTP alone
	Sign    func(*http.Request) error // signs the transport's own requests; nil: they are not signed
	Timeout time.Duration             // of a transfer; 0: 60 s

	plain sync.Map // the time of the last 501, by host
}

// again is the time after which a server that has answered 501 is asked again.
const again = time.Minute

// carried are the headers of requests that can go by RDMA. Others would be lost.
var carried = map[string]bool{"Authorization": true, "X-Amz-Date": true, "X-Amz-Content-Sha256": true, "Range": true,
	"X-Amz-Security-Token": true, "User-Agent": true, "Accept-Encoding": true}

// transfer is one object on its way by RDMA.
type transfer struct {
	*stage
	*Transport
	request      *http.Request
	offset, size int64
	cookie       uint32
	answer       http.Response // what the caller gets
}

func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := transfer{Transport: t, request: r, size: r.ContentLength, cookie: 1 + rand.Uint32N(1<<32-1),
		answer: http.Response{StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{}, Body: http.NoBody}}
	since, _ := t.plain.Load(r.URL.Host)
	last, asked := since.(time.Time)
	fits := t.Device != nil && !(asked && time.Since(last) < again) && (r.URL.RawQuery == "" || r.URL.Query().Has("x-id"))
	for name := range r.Header {
		fits = fits && carried[name]
	}
	if fits && r.Method == "GET" {
		head, err := x.send(r.Context(), "HEAD", r.URL.RequestURI())
		if err != nil {
			return nil, err
		}
		x.answer.Header = head.Header
		fits = head.StatusCode == 200 && x.part(r.Header.Get("Range"), head.ContentLength)
	}
	if !fits || r.Method != "GET" && r.Method != "PUT" || x.size < 1 || x.size > maxSize {
		return t.Base.RoundTrip(r)
	}
	a, err := x.run()
	if err != nil {
		return nil, err
	}
	a.Request, a.Status = r, fmt.Sprint(a.StatusCode, " ", http.StatusText(a.StatusCode))
	return a, nil
}

// part sets the offset and size that a Range asks for, in an object with so many bytes. It returns
// false if only plain HTTP can answer.
func (x *transfer) part(want string, total int64) bool {
	if x.size = total; want == "" {
		return true
	}
	from, to := int64(0), total-1
	n, _ := fmt.Sscanf(want, "bytes=%d-%d", &from, &to)
	to = min(to, total-1)
	x.offset, x.size, x.answer.StatusCode = from, to-from+1, 206
	x.answer.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, total))
	return n > 0 && from >= 0 && !strings.Contains(want, ",")
}

// send sends a request of the transport's own, and reads the answer.
func (x *transfer) send(ctx context.Context, method, path string, headers ...string) (*http.Response, error) {
	u := x.request.URL
	r, err := http.NewRequestWithContext(ctx, method, u.Scheme+"://"+u.Host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Host = x.request.Host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(prefix+headers[i], headers[i+1])
	}
	if x.Sign != nil {
		err = x.Sign(r)
	}
	if err != nil {
		return nil, err
	}
	a, err := x.Base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	a.Body = io.NopCloser(bytes.NewReader(text))
	return a, err
}

// body is a body in registered memory.
type body struct {
	*bytes.Reader
	close func()
}

func (b body) Close() error { b.close(); return nil }

// run moves the object. It returns the server's answer if the server refuses.
func (x *transfer) run() (a *http.Response, err error) {
	ctx, cancel := context.WithTimeout(x.request.Context(), cmp.Or(x.Timeout, 60*time.Second))
	defer cancel()
	put, access := x.request.Method == "PUT", cverbs.AccessRemoteWrite
	if put {
		defer x.request.Body.Close()
		access = 0
	}
	if x.stage, err = x.Device.open(x.request.URL.Host, x.size, cverbs.GID{}, access); err != nil {
		return nil, err
	}
	memory := body{bytes.NewReader(x.mem[:x.size]), sync.OnceFunc(x.close)}
	kept := false
	defer func() {
		if !kept {
			memory.close()
		}
	}()
	if put {
		_, err = io.ReadFull(x.request.Body, x.mem[:x.size])
	} else {
		err = x.expect()
	}
	if err != nil {
		return nil, err
	}
	target := strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(x.request.URL.Path))
	own := token{QPN: x.qp.Num(), GID: x.gid.GID, Port: 1, LID: x.Device.port.LID}
	cookie := fmt.Sprintf("%08x", x.cookie)
	a, err = x.send(ctx, "POST", controls+"prepare", "Protocol", protocol, "Token", own.String(), "Psn",
		fmt.Sprintf("%06x", x.psn), "Cookie", cookie, "Op", x.request.Method, "Target", target, "Size", fmt.Sprint(x.size),
		"Offset", fmt.Sprint(x.offset))
	switch {
	case err != nil:
		return nil, err
	case a.StatusCode == 501 && a.Header.Get(prefix+"Protocol-Status") == "unsupported":
		x.plain.Store(x.request.URL.Host, time.Now())
		r := x.request.Clone(x.request.Context())
		if kept = put; put {
			r.Body = memory
		}
		return x.Base.RoundTrip(r)
	case a.StatusCode != 200:
		return a, nil
	}
	f := &fields{Header: a.Header}
	session := f.text("Session")
	a, err = x.move(ctx, f, put, "Protocol", protocol, "Session", session, "Cookie", cookie)
	if err != nil || a.StatusCode/100 != 2 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		x.send(ctx, "POST", controls+"cancel", "Protocol", protocol, "Session", session, "Cookie", cookie)
		return a, err
	}
	etag, was := a.Header.Get(prefix+"Etag"), x.answer.Header.Get("Etag")
	if put {
		x.answer.Header.Set("Etag", etag)
		return &x.answer, nil
	}
	if etag != "" && etag != was {
		return nil, fmt.Errorf("the object has changed from %s to %s", was, etag)
	}
	kept = true
	x.answer.Body, x.answer.ContentLength = memory, x.size
	x.answer.Header.Set("Content-Length", fmt.Sprint(x.size))
	return &x.answer, nil
}

// move connects the queue pairs, sends READY, moves the bytes, and returns the answer to READY.
func (x *transfer) move(ctx context.Context, f *fields, put bool, headers ...string) (final *http.Response, err error) {
	psn := uint32(f.hex("Psn", 1, 1<<24-1))
	peer, err := parseToken(strings.TrimPrefix(f.text("Reply"), "200:"))
	if err != nil || peer.GID.IsZero() || f.text("Protocol") != protocol {
		f.fail("the server's token: %v", err)
	}
	if put {
		peer.Addr, peer.RKey = f.hex("Mr-Addr", 0, 1<<64-1), uint32(f.hex("Mr-Rkey", 0, 1<<32-1))
	}
	if f.err != nil {
		return nil, fmt.Errorf("the answer to PREPARE: %w", f.err)
	}
	if err := x.connect(peer, peer.QPN, psn); err != nil {
		return nil, err
	}
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	moving, refused := context.WithCancelCause(ctx)
	sent, over := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(sent) })
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }}
	var failed error
	go func() {
		defer close(over)
		final, failed = x.send(httptrace.WithClientTrace(ctx, trace), "POST", controls+"ready", append(headers,
			"Qpn", fmt.Sprintf("%x", x.qp.Num()), "Mr-Addr", fmt.Sprintf("%x", x.mr.Addr()), "Mr-Rkey", fmt.Sprintf("%x",
				x.mr.RKey()))...)
		if failed == nil && final.StatusCode/100 == 2 {
			f := &fields{Header: final.Header}
			if f.text("Protocol") != protocol || f.hex("Cookie", 1, 1<<32-1) != uint64(x.cookie) {
				f.fail("the answer to READY is for another transfer")
			}
			if failed = f.err; failed == nil {
				return
			}
		}
		refused(cmp.Or(failed, errors.New("refused")))
	}()
	select { // the server connects when it has READY; RC repeats a write that comes a little earlier
	case <-sent:
	case <-moving.Done():
	}
	if put {
		err = x.write(moving, x.size, peer.Addr, peer.RKey, x.cookie)
	} else {
		_, err = x.received(moving, x.cookie)
	}
	if err != nil {
		hangUp()
	}
	if <-over; failed == nil && final.StatusCode/100 != 2 {
		return final, nil
	}
	return final, cmp.Or(err, failed)
}
