package rdmanet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"syscall"
)

// Messages is a connection as messages: each SendMsg is one RecvMsg of the peer, which must use
// Messages too. Do not use Read, Write and the like of the connection beside it; its deadlines,
// regions and Close are those of the messages too. All methods are safe for concurrent use.
type Messages struct {
	c *Conn

	// Guarded by Conn.rmu.
	inHead [messageHead]byte
	have   int // bytes of inHead
	taken  int // bytes of the message at hand that RecvMsg has copied

	// Guarded by Conn.wmu.
	outHead [messageHead]byte
	broken  error // why no more messages can be sent: part of one has been
}

// messageHead is the length of a message's length.
const messageHead = 4

// NewMessages makes messages of a connection on which nothing has been written or read.
func NewMessages(c *Conn) *Messages { return &Messages{c: c} }

// Conn is the connection.
func (m *Messages) Conn() *Conn { return m.c }

// SendMsg sends p as one message, which may be empty and at most 4 GiB - 1 long, and returns once
// it has been copied. It blocks as [Conn.Write] does. If it fails amid a message, no more can be
// sent.
func (m *Messages) SendMsg(p []byte) error {
	c := m.c
	if uint64(len(p)) > math.MaxUint32 {
		return c.opError("write", fmt.Errorf("message of %d bytes, the limit is %d: %w", len(p), uint32(math.MaxUint32),
			syscall.EMSGSIZE))
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	binary.BigEndian.PutUint32(m.outHead[:], uint32(len(p)))
	n, err := c.writePieces(m.outHead[:], p)
	if err != nil {
		err = c.opError("write", err)
		if n > 0 {
			m.broken = err
		}
	}
	return err
}

// MsgTooLongError is the error of RecvMsg for a message that is longer than the buffer.
type MsgTooLongError struct{ Len int } // of the message, in bytes

func (e *MsgTooLongError) Error() string {
	return fmt.Sprintf("rdmanet: the message has %d bytes, the buffer has less", e.Len)
}

// RecvMsg receives the next message into p and returns its length. A message that is longer than p
// is a [*MsgTooLongError] and stays: receive it with a longer buffer. The end of the stream is
// io.EOF, amid a message io.ErrUnexpectedEOF. After os.ErrDeadlineExceeded call again with the same
// p: part of the message may be in it already.
func (m *Messages) RecvMsg(p []byte) (int, error) {
	c := m.c
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if err := m.fill(m.inHead[:], &m.have); err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint32(m.inHead[:]))
	if size > len(p) {
		return 0, &MsgTooLongError{Len: size}
	}
	if err := m.fill(p[:size], &m.taken); err != nil {
		return 0, err
	}
	m.have, m.taken = 0, 0
	return size, nil
}

// fill reads until p is full; the first have bytes are there.
func (m *Messages) fill(p []byte, have *int) error {
	for *have < len(p) {
		b, err := m.c.await()
		if err == io.EOF && m.have > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return m.c.opError("read", err)
		}
		n := copy(p[*have:], b)
		*have += n
		m.c.taken(n)
	}
	return nil
}

// Close closes the connection.
func (m *Messages) Close() error { return m.c.Close() }
