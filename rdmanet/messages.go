package rdmanet

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"syscall"
)

// Messages sends and receives messages over a connection. Each RecvMsg returns the message of one
// SendMsg of the peer, which must use Messages too. Do not call the connection's methods that read
// or write the stream. Each call ends with its context; the deadlines of the connection also apply.
// The regions and Close of the connection may be used. All methods are safe for concurrent use.
type Messages struct {
	c *Conn

	// Each has a place for one call, which waits for it no longer than its context.
	sending, receiving chan struct{}

	// Guarded by receiving.
	inHead [messageHead]byte
	have   int    // number of bytes of inHead that have been received
	part   []byte // of the current message, from a RecvMsg that has ended early

	// Guarded by sending.
	outHead [messageHead]byte
	broken  error // set if only part of a message was sent, so that no more can be sent
}

// messageHead is the size in bytes of a message's header, which contains the length of the message.
const messageHead = 4

// NewMessages returns a Messages on a connection. Nothing may have been written to the connection
// or read from it before.
func NewMessages(c *Conn) *Messages {
	return &Messages{c: c, sending: make(chan struct{}, 1), receiving: make(chan struct{}, 1)}
}

// Conn returns the connection.
func (m *Messages) Conn() *Conn { return m.c }

// SendMsg sends p as one message. The message may be empty, and may have up to 4 GiB - 1 bytes.
// SendMsg returns when p has been copied, and blocks like [Conn.Write]. If it fails or ctx ends in
// the middle of a message, no more messages can be sent. That happens only to messages that are
// longer than the free part of WriteBuffer.
func (m *Messages) SendMsg(ctx context.Context, p []byte) error {
	c := m.c
	if !c.ok() {
		return syscall.EINVAL
	}
	if uint64(len(p)) > math.MaxUint32 {
		return c.opError("write", fmt.Errorf("message of %d bytes, the limit is %d: %w", len(p), uint32(math.MaxUint32),
			syscall.EMSGSIZE))
	}
	if err := take(ctx, m.sending); err != nil {
		return c.opError("write", err)
	}
	defer func() { <-m.sending }()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	binary.BigEndian.PutUint32(m.outHead[:], uint32(len(p)))
	n, err := c.writePieces(ctx, m.outHead[:], p)
	if err != nil {
		err = c.opError("write", err)
		if n > 0 {
			m.broken = err
		}
	}
	return err
}

// MsgTooLongError is the error of RecvMsg for a message that is longer than the buffer.
type MsgTooLongError struct{ Len int } // length of the message in bytes

func (e *MsgTooLongError) Error() string {
	return fmt.Sprintf("rdmanet: the message has %d bytes, the buffer has less", e.Len)
}

// RecvMsg receives the next message into p and returns its length. If the message is longer than p,
// the error is a [*MsgTooLongError]; the message can be received with a longer buffer. At the end
// of the stream the error is io.EOF, or io.ErrUnexpectedEOF if the stream ends within a message.
// If ctx ends or the read deadline passes, no byte is lost: a later RecvMsg receives the message.
func (m *Messages) RecvMsg(ctx context.Context, p []byte) (int, error) {
	c := m.c
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if err := take(ctx, m.receiving); err != nil {
		return 0, c.opError("read", err)
	}
	defer func() { <-m.receiving }()
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if err := m.fill(ctx, m.inHead[:], &m.have); err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint32(m.inHead[:]))
	if size > len(p) {
		return 0, &MsgTooLongError{Len: size}
	}
	n := copy(p, m.part)
	if err := m.fill(ctx, p[:size], &n); err != nil {
		m.part = bytes.Clone(p[:n])
		return 0, err
	}
	m.have, m.part = 0, nil
	return size, nil
}

// take takes the place of a call, or returns the error of ctx.
func take(ctx context.Context, place chan struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	default:
	}
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fill reads until p is full. *have is the number of bytes that p already has.
func (m *Messages) fill(ctx context.Context, p []byte, have *int) error {
	for *have < len(p) {
		b, err := m.c.await(ctx)
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
