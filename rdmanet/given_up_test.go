package rdmanet

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestGivenUpBeforeTheAnswer has a listener that gives up a connection before it has answered. A
// device may then report that the first message has failed before it reports the end; tcp reports
// it as a message that the peer does not answer. Dial tries again, whatever the status. After the
// answer, such a connection is broken instead.
func TestGivenUpBeforeTheAnswer(t *testing.T) {
	for status := udat.DTOErrLocalLength; status <= udat.DTOErrPartialPacket; status++ {
		for _, answered := range []bool{false, true} {
			l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			c, err := (&Dialer{Device: memDevice}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			ended := make(chan error, 1)
			c.mu.Lock()
			if !answered {
				c.ready = func(_ *Conn, err error) { ended <- err }
			}
			c.mu.Unlock()
			events{c}.handle(&udat.Event{
				Number: udat.EventDTOCompletion, Operation: udat.DTOSend, Status: status, RawStatus: retryExceeded,
			})
			if !answered {
				assert.Assert(t, errors.As(<-ended, new(errBusy)), "%v", status)
			}
			_, err = c.Read(make([]byte, 1))
			assert.Assert(t, err != nil)
			assert.Equal(t, errors.As(err, new(errBusy)), !answered, "%v: %v", status, err)
			assert.NilError(t, c.Close())
			assert.NilError(t, l.Close())
		}
	}
}

// TestMayPass: Dial tries again after the errors that a busy listener causes, and after no others.
func TestMayPass(t *testing.T) {
	for _, c := range []struct {
		what  udat.EventNumber
		cause syscall.Errno
		again bool
	}{
		{udat.EventConnectionNonPeerRejected, syscall.EAGAIN, true},
		{udat.EventConnectionNonPeerRejected, syscall.EINVAL, true},
		{udat.EventConnectionUnreachable, syscall.ETIMEDOUT, true},
		{udat.EventConnectionTimedOut, syscall.ETIMEDOUT, false}, // the time limit that Dial has set
		{udat.EventConnectionUnreachable, syscall.EHOSTUNREACH, false},
		{udat.EventConnectionNonPeerRejected, syscall.ECONNREFUSED, false},
	} {
		assert.Equal(t, mayPass(c.what, fmt.Errorf("the device: %w", c.cause)), c.again, "%v, %v", c.what, c.cause)
	}
}
