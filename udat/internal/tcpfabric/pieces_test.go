package tcpfabric

import (
	"net"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// TestTerminateInPieces: a terminate is read whole, whatever the pieces in which it comes. One that
// is longer than the buffer is refused.
func TestTerminateInPieces(t *testing.T) {
	v := newVictim(t)
	reason := []byte{0x01, 0x01, 0, 0} // refused access
	for _, c := range []struct {
		extra int // bytes after the reason
		cuts  []int
		want  error
	}{
		{0, []int{3, 4, 10, 20, 21, 22, 25}, iwarp.Fault(0x0101)},
		{100, []int{22, 24, 26, 60}, iwarp.Fault(0x0101)},
		{plain.size - 28, []int{22, 24, 26, 30000}, iwarp.Fault(0x0101)}, // as long as the buffer
		{plain.size - 24, []int{22, 24, 26, 30000}, iwarp.FaultLength},
	} {
		p, s := v.joined()
		assert.NilError(t, p.Conn.(*net.TCPConn).SetNoDelay(true))
		b := frame(iwarp.Header{Op: iwarp.OpTerminate, MSN: 1}, append(slices.Clone(reason), make([]byte, c.extra)...), false)
		at := 0
		for _, cut := range append(c.cuts, len(b)) {
			p.bytes(b[at:cut])
			at = cut
			time.Sleep(time.Millisecond)
		}
		if c.want == iwarp.FaultLength {
			p.terminatedWith(iwarp.FaultLength)
		}
		select {
		case ev := <-v.reports:
			assert.Equal(t, ev.Kind, fabric.AsyncQPFatal)
			assert.Equal(t, ev.QP, s.qp)
			assert.ErrorIs(t, ev.Err, c.want)
		case <-time.After(patience):
			t.Fatal("no report")
		}
		p.Close()
		s.over()
	}
}
