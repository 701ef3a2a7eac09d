package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
)

// Server is an http.Handler that serves the objects of a folder, over RDMA to clients that ask for
// it, and over plain HTTP. It is safe for concurrent use; its fields are set before.
type Server struct {
	// Authorize returns whom a request is from, for the limits, or an error. With it each header of
	// RDMA must be signed. Without it the owner is the client's IP address.
	Authorize func(*http.Request) (owner string, err error)

	Sessions      int           // most transfers at a time
	OwnerSessions int           // of one owner
	OwnerBytes    int64         // most staging memory of one owner
	ReadyTime     time.Duration // from PREPARE to READY
	TransferTime  time.Duration

	root   *os.Root
	device *Device // nil: plain HTTP alone

	mu       sync.Mutex
	sessions map[string]*session
	over     sync.WaitGroup // counts them
	stopped  context.Context
	stop     context.CancelFunc
}

// session is one transfer, from PREPARE to the end of READY.
type session struct {
	*stage
	owner, id, name, etag string
	get, waiting          bool // waiting for READY or CANCEL
	size, offset          int64
	cookie, psn           uint32 // the client's
	peer                  token
}

// NewServer returns a server of a folder of buckets. Without a device it serves plain HTTP.
func NewServer(root *os.Root, device *Device) *Server {
	s := &Server{root: root, device: device, Sessions: 64, OwnerSessions: 16, ReadyTime: 10 * time.Second,
		TransferTime: 30 * time.Second, sessions: map[string]*session{}}
	if device != nil {
		s.OwnerBytes = device.limit / 2
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all transfers and waits for their end.
func (s *Server) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.over.Wait()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	owner, err := s.authorize(r)
	control, is := strings.CutPrefix(r.URL.Path, controls)
	f := &fields{Header: r.Header}
	switch {
	case err != nil:
	case !is && f.Get(prefix+"Token") == "":
		err = s.object(w, r)
	case !is || f.Get(prefix+"Protocol") != protocol || s.device == nil: // the client is to take plain HTTP
		w.Header().Set(prefix+"Protocol-Status", "unsupported")
		w.Header().Set(prefix+"Reply", "501")
		err = fail(501, "RDMA is not served by this protocol")
	case r.Method != "POST" || r.ContentLength != 0:
		err = fail(400, "a request of the protocol is a POST without a body")
	default:
		w.Header().Set(prefix+"Protocol", protocol)
		switch control {
		case "prepare":
			err = s.prepare(w.Header(), f, owner)
		case "ready":
			err = s.ready(r.Context(), w.Header(), f, owner)
		case "cancel":
			err = s.cancel(w, f, owner)
		default:
			err = fail(400, "there is no request %.40q", control)
		}
	}
	if err != nil {
		answer(w, err)
	}
}

func (s *Server) authorize(r *http.Request) (owner string, err error) {
	if s.Authorize == nil {
		owner, _, err = net.SplitHostPort(r.RemoteAddr)
		return owner, err
	}
	if owner, err = s.Authorize(r); err != nil {
		return "", fail(403, "%v", err)
	}
	_, signed, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for name := range r.Header {
		if strings.HasPrefix(name, prefix) && !strings.Contains(";"+signed+";", ";"+strings.ToLower(name)+";") {
			return "", fail(403, "the header %s is not signed", name)
		}
	}
	return owner, nil
}

// object serves an object over plain HTTP. It takes at most a minute, and a second for each MiB.
func (s *Server) object(w http.ResponseWriter, r *http.Request) error {
	name, err := objectName(r.URL)
	if err != nil {
		return err
	}
	limit := func(n int64) time.Time { return time.Now().Add(time.Minute + time.Duration(n>>20)*time.Second) }
	switch {
	case r.Method == "GET" || r.Method == "HEAD":
		file, info, err := s.open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		http.NewResponseController(w).SetWriteDeadline(limit(info.Size()))
		w.Header().Set("Etag", etagOf(info))
		http.ServeContent(w, r, ".bin", info.ModTime(), file)
		return nil
	case r.Method != "PUT":
		return fail(405, "%s is not served: GET, HEAD and PUT are", r.Method)
	case r.ContentLength < 0:
		return fail(411, "a PUT needs Content-Length")
	case r.ContentLength > 5<<30:
		return fail(413, "a PUT has at most 5 GiB")
	case strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-"):
		return fail(501, "bodies in signed chunks are not served")
	}
	http.NewResponseController(w).SetReadDeadline(limit(r.ContentLength))
	etag, err := s.store(name, r.Body)
	w.Header().Set("Etag", etag)
	return err
}

// open opens the file of an object. The caller must close it if there is no error.
func (s *Server) open(name string) (*os.File, fs.FileInfo, error) {
	info, err := s.root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil, fail(404, "there is no object %q", name)
	}
	file, err := s.root.Open(name)
	return file, info, err
}

// bucket returns an error if the bucket of an object does not exist.
func (s *Server) bucket(name string) error {
	bucket, _, _ := strings.Cut(filepath.ToSlash(name), "/")
	if info, err := s.root.Stat(bucket); err != nil || !info.IsDir() {
		return fail(404, "there is no bucket %q", bucket)
	}
	return nil
}

// store writes an object and returns its tag. Readers see the old object or the new one, whole.
func (s *Server) store(name string, from io.Reader) (etag string, err error) {
	if err := s.bucket(name); err != nil {
		return "", err
	}
	part := ".part-" + rand.Text() // is in no bucket
	file, err := s.root.Create(part)
	if err != nil {
		return "", err
	}
	defer s.root.Remove(part) // after the Rename there is none
	_, err = io.Copy(file, from)
	info, failed := file.Stat()
	if err = errors.Join(err, failed, file.Close(), s.root.MkdirAll(filepath.Dir(name), 0o755)); err != nil {
		return "", err
	}
	return etagOf(info), s.root.Rename(part, name)
}

// etagOf returns a tag that changes with the object. It has a dash, as tags that are no MD5 have.
func etagOf(i fs.FileInfo) string { return fmt.Sprintf(`"%x-%x"`, i.ModTime().UnixNano(), i.Size()) }

// prepare makes a session. The request's numbers choose no more memory than the limits allow.
func (s *Server) prepare(h http.Header, f *fields, owner string) (err error) {
	x := &session{owner: owner, psn: uint32(f.hex("Psn", 1, 1<<24-1)), cookie: uint32(f.hex("Cookie", 1, 1<<32-1)),
		get: f.text("Op") == "GET", size: f.decimal("Size"), id: fmt.Sprintf("%x", rand.Text()[:16])}
	if x.peer, err = parseToken(f.text("Token")); err != nil {
		f.fail("%v", err)
	}
	if f.Get(prefix+"Offset") != "" {
		x.offset = f.decimal("Offset")
	}
	if !x.get && (f.text("Op") != "PUT" || x.offset != 0) || x.size < 1 {
		f.fail("it must be a GET, or a PUT with offset 0, of one byte or more")
	}
	u, err := url.ParseRequestURI(f.text("Target"))
	if err != nil || u.Host != "" {
		f.fail("the target is no /BUCKET/KEY: %v", err)
	}
	if f.err == nil && x.size > maxSize {
		f.err = fail(413, "one transfer has at most %d bytes", maxSize)
	}
	if f.err == nil {
		x.name, f.err = objectName(u)
	}
	if f.err == nil {
		f.err = s.reserve(x)
	}
	if f.err != nil {
		return f.err
	}
	if err := s.fill(x); err != nil {
		s.finish(x)
		return err
	}
	h.Set(prefix+"Reply", "200:"+x.token().String())
	h.Set(prefix+"Session", x.id)
	h.Set(prefix+"Psn", fmt.Sprintf("%06x", x.stage.psn))
	h.Set(prefix+"Qpn", fmt.Sprintf("%x", x.qp.Num()))
	h.Set(prefix+"Mr-Addr", fmt.Sprintf("%x", x.mr.Addr()))
	h.Set(prefix+"Mr-Rkey", fmt.Sprintf("%x", x.mr.RKey()))
	s.mu.Lock()
	defer s.mu.Unlock()
	x.waiting = true
	ctx, cancel := context.WithTimeout(s.stopped, s.ReadyTime)
	context.AfterFunc(ctx, func() { cancel(); s.expire(x) })
	return nil
}

// fill makes the memory and the queue pair of a session, and reads what a GET asks for.
func (s *Server) fill(x *session) (err error) {
	if err := s.bucket(x.name); err != nil {
		return err
	}
	access := cverbs.AccessRemoteWrite
	var file *os.File
	if x.get {
		var info fs.FileInfo
		if file, info, err = s.open(x.name); err != nil {
			return err
		}
		defer file.Close()
		if x.etag = etagOf(info); x.size > info.Size()-x.offset {
			return fail(416, "the object has %d bytes", info.Size())
		}
		access = 0 // the client reaches nothing: the server writes
	}
	x.stage, err = s.device.open(x.owner, x.size, x.peer.GID, access)
	switch {
	case errors.Is(err, errFull):
		return fail(503, "%v: try later", err)
	case err == nil && x.get:
		_, err = io.ReadFull(io.NewSectionReader(file, x.offset, x.size), x.mem[:x.size])
	case err == nil:
		err = x.expect()
	}
	return err
}

// ready connects the queue pairs, moves the bytes, and stores them.
func (s *Server) ready(ctx context.Context, h http.Header, f *fields, owner string) error {
	qpn, addr, rkey := uint32(f.hex("Qpn", 1, 1<<24-1)), uint64(0), uint32(0)
	memory := f.Get(prefix+"Mr-Addr") != "" || f.Get(prefix+"Mr-Rkey") != ""
	if memory { // a PUT may leave it out
		addr, rkey = f.hex("Mr-Addr", 0, 1<<64-1), uint32(f.hex("Mr-Rkey", 0, 1<<32-1))
	}
	x, err := s.claim(f, owner, memory)
	if err != nil {
		return err
	}
	defer s.finish(x)
	ctx, cancel := context.WithTimeout(ctx, s.TransferTime)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	n := x.size
	if err = x.connect(x.peer, qpn, x.psn); err == nil && x.get {
		err = x.write(ctx, x.size, addr, rkey, x.cookie)
	} else if err == nil {
		n, err = x.received(ctx, x.cookie)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(408, "the transfer took more than %v", s.TransferTime)
	case err != nil || n != x.size:
		return fail(502, "%d bytes of %d: %v", n, x.size, err)
	case !x.get:
		if x.etag, err = s.store(x.name, bytes.NewReader(x.mem[:n])); err != nil {
			return err
		}
	}
	h.Set(prefix+"Cookie", fmt.Sprintf("%08x", x.cookie))
	h.Set(prefix+"Bytes-Transferred", fmt.Sprint(n))
	h.Set(prefix+"Etag", x.etag)
	return nil
}

// cancel ends a session. One that is over, or in transfer, needs no end.
func (s *Server) cancel(w http.ResponseWriter, f *fields, owner string) error {
	x, err := s.claim(f, owner, true)
	if err == nil {
		s.finish(x)
	} else if err.(failure).status != 409 {
		return err
	}
	w.WriteHeader(204)
	return nil
}

// reserve puts a session into the table if the limits allow it.
func (s *Server) reserve(x *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, bytes := 0, stageSize(x.size)
	for _, other := range s.sessions {
		if other.owner == x.owner {
			count, bytes = count+1, bytes+stageSize(other.size)
		}
	}
	switch {
	case s.stopped.Err() != nil || len(s.sessions) >= s.Sessions:
		return fail(503, "the server stops, or has %d transfers: try later", s.Sessions)
	case stageSize(x.size) > s.OwnerBytes:
		return fail(413, "a client may have %d bytes in transfer", s.OwnerBytes)
	case count >= s.OwnerSessions || bytes > s.OwnerBytes:
		return fail(429, "a client may have %d transfers, with %d bytes", s.OwnerSessions, s.OwnerBytes)
	}
	s.sessions[x.id] = x
	s.over.Add(1)
	return nil
}

// claim returns the session of a request, which no other request gets from then on. A session of
// another owner counts as unknown. A refused request changes nothing.
func (s *Server) claim(f *fields, owner string, memory bool) (*session, error) {
	id, cookie := f.text("Session"), uint32(f.hex("Cookie", 1, 1<<32-1))
	if f.err != nil {
		return nil, f.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[id]
	switch {
	case x == nil || x.owner != owner || !x.waiting:
		return nil, fail(409, "there is no such session, its time is over, or it is in transfer")
	case x.cookie != cookie:
		return nil, fail(403, "the session has another cookie")
	case x.get && !memory:
		return nil, fail(400, "a GET needs Mr-Addr and Mr-Rkey")
	}
	x.waiting = false
	return x, nil
}

// expire ends a session that waits for READY.
func (s *Server) expire(x *session) {
	s.mu.Lock()
	waiting := x.waiting
	x.waiting = false
	s.mu.Unlock()
	if waiting {
		s.finish(x)
	}
}

// finish ends a session that the caller has claimed, or that has not waited.
func (s *Server) finish(x *session) {
	if x.stage != nil {
		x.close()
	}
	s.mu.Lock()
	delete(s.sessions, x.id)
	s.mu.Unlock()
	s.over.Done()
}
