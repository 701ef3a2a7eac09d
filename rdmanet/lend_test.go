package rdmanet

import (
	"bytes"
	"net"
	"testing"

	"gotest.tools/v3/assert"
)

// received waits until n bytes in all have come to the connection.
func received(t *testing.T, c *Conn, n uint64) {
	t.Helper()
	until(t, "bytes come", func() bool { return c.Stats().BytesReceived >= n })
}

func write(t *testing.T, c *Conn, b []byte) {
	t.Helper()
	_, err := c.Write(b)
	assert.NilError(t, err)
}

// TestCloseBeforeLoan closes just before WriteTo takes what has come: the writer gets nothing.
func TestCloseBeforeLoan(t *testing.T) {
	client, server := ends(t)
	write(t, client, []byte("hello"))
	server.rmu.Lock()
	b, err := server.await(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, server.Close())
	_, err = server.borrow(b)
	server.rmu.Unlock()
	assert.Equal(t, err, net.ErrClosed)
}

// TestCloseReadBeforeLoan ends reading just before WriteTo takes the data of a full ring. The peer
// sends nothing until it has a credit, so WriteTo must send one.
func TestCloseReadBeforeLoan(t *testing.T) {
	client, server := endsWith(t, ListenConfig{ReadBuffer: minRing})
	write(t, client, make([]byte, minRing))
	received(t, server, minRing)
	server.rmu.Lock()
	b, err := server.await(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, server.CloseRead())
	server.borrow(b)
	server.rmu.Unlock()
	until(t, "the peer has credit", func() bool { return client.Stats().Credit > 0 })
	write(t, client, make([]byte, 1<<20))
}

// TestCloseReadTellsPeer ends reading of a full ring. The data in the ring is dropped, and the peer
// gets a credit at once.
func TestCloseReadTellsPeer(t *testing.T) {
	client, server := endsWith(t, ListenConfig{ReadBuffer: minRing})
	write(t, client, make([]byte, minRing))
	received(t, server, minRing)
	assert.NilError(t, server.CloseRead())
	until(t, "the peer has credit", func() bool { return client.Stats().Credit == minRing })
}

// TestTwoLoans reads while WriteTo uses the memory. The bytes of the second loan are a copy, which
// does not change when the first loan has ended and the peer fills the ring anew.
func TestTwoLoans(t *testing.T) {
	client, server := endsWith(t, ListenConfig{ReadBuffer: minRing})
	const n = 1100 // reading two pieces of this size makes a credit due
	lend := func(value byte, sum uint64) loan {
		write(t, client, bytes.Repeat([]byte{value}, n))
		received(t, server, sum)
		l, err := server.lend()
		assert.NilError(t, err)
		assert.Equal(t, len(l.bytes), n)
		return l
	}
	first, second := lend('a', n), lend('b', 2*n)
	server.giveBack(first, n)
	write(t, client, bytes.Repeat([]byte{'c'}, minRing))
	received(t, server, 2*n+minRing)
	assert.Assert(t, bytes.Equal(second.bytes, bytes.Repeat([]byte{'b'}, n)))
	server.giveBack(second, n)
}

// TestReadBesideLoan reads what follows a loan of which only a part is consumed in the end: the
// rest of the loan is lost, and no byte comes twice.
func TestReadBesideLoan(t *testing.T) {
	client, server := ends(t)
	write(t, client, bytes.Repeat([]byte{'a'}, 1000))
	received(t, server, 1000)
	l, err := server.lend()
	assert.NilError(t, err)
	p := make([]byte, 100)
	for _, text := range []string{"follows", "goes on"} {
		write(t, client, []byte(text))
		n, err := server.Read(p)
		assert.NilError(t, err)
		assert.Equal(t, string(p[:n]), text)
		if l.bytes != nil {
			server.giveBack(l, 1)
			l.bytes = nil
		}
	}
}

// TestLoanIsAQuarter: what WriteTo lends is a quarter of a full buffer at most, so that
// the peer may send more before it is given back.
func TestLoanIsAQuarter(t *testing.T) {
	const buffer = 64 << 10
	client, server := endsWith(t, ListenConfig{ReadBuffer: buffer})
	for sum, most := uint64(0), 0; most < buffer/4; {
		write(t, client, make([]byte, minRing))
		sum += minRing
		received(t, server, sum)
		if sum%(buffer/2) != 0 {
			continue
		}
		for left := buffer / 2; left > 0; {
			l, err := server.lend()
			assert.NilError(t, err)
			n := len(l.bytes)
			assert.Assert(t, n <= buffer/4, "%d bytes", n)
			most, left = max(most, n), left-n
			server.giveBack(l, n)
		}
		assert.Assert(t, sum < 100*buffer, "%d bytes at most", most)
	}
}
