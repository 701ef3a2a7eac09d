package engine

import (
	"context"
	"fmt"
	"net"

	"github.com/godat/godat/internal/perf/doctor"
)

// Examination is what a server found when it examined its host.
type Examination struct {
	Findings []doctor.Finding
	Received int64 // packets that the port of the server's device has received, -1 if unknown
}

// Examine asks the server at the other end of the control connection conn to examine its host. It
// closes conn.
func Examine(ctx context.Context, conn net.Conn, version string) (*Examination, error) {
	k := newControl(conn, "server")
	defer k.close()
	if _, err := k.greet(ctx, answerTime, message{Version: version, Cases: 1}, nil); err != nil {
		return nil, err
	}
	if err := k.send(message{Kind: msgExamine}); err != nil {
		return nil, err
	}
	m, err := k.expect(ctx.Done(), msgExamine)
	if err != nil {
		return nil, err
	}
	found, err := readRaw[[]doctor.Finding](m.Findings)
	if err != nil {
		return nil, fmt.Errorf("what the server found: %w", err)
	}
	e := &Examination{Findings: *found, Received: -1}
	if m.Received != nil {
		e.Received = *m.Received
	}
	return e, k.send(message{Kind: msgBye})
}

// examine examines this host and sends the findings to the client. Only one examination runs at a
// time.
func (s *Server) examine(k *control, device string) error {
	s.examining.Lock()
	defer s.examining.Unlock()
	m := message{Kind: msgExamine, Findings: raw(doctor.Examine())}
	if n, ok := doctor.Received(device); ok {
		m.Received = &n
	}
	return k.send(m)
}
