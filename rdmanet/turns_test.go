package rdmanet

import (
	"io"
	"testing"

	"gotest.tools/v3/assert"
)

// TestFullDispatcher: a dispatcher that has had no room for a connection gets no new ones until one
// of its connections ends. So connections that do not fit into the first dispatcher share others.
func TestFullDispatcher(t *testing.T) {
	a, err := openAdapter("mem0", Path{}, 0)
	assert.NilError(t, err)
	defer a.close()
	s := &dispatchers{adapter: a}
	get := func(fresh bool) *dispatcher {
		d, err := s.get(fresh)
		assert.NilError(t, err)
		return d
	}
	first := get(false)
	assert.Equal(t, get(false), first)
	assert.Equal(t, get(false), first)
	s.putFull(first)
	second := get(true)
	assert.Assert(t, second != first)
	for range 3 {
		assert.Equal(t, get(false), second)
	}
	s.put(first) // one goes, one stays
	assert.Equal(t, get(false), first)
	s.put(first)
	s.put(first)
	for range 4 {
		s.put(second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(t, len(s.list), 0)
}

// TestAnswered: a Read yields its processor before it waits for events unless the program has
// written since it last took data, in each round anew, by Read and by WriteTo.
func TestAnswered(t *testing.T) {
	for _, dev := range hostileDevices() {
		t.Run(dev, func(t *testing.T) {
			l, err := (&ListenConfig{Device: dev}).Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			client, err := (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer client.Close()
			server, err := l.AcceptConn()
			assert.NilError(t, err)
			defer server.Close()
			answered := func() bool {
				server.mu.Lock()
				defer server.mu.Unlock()
				return server.answered()
			}
			assert.Assert(t, !answered())
			for range 3 {
				_, err = client.Write([]byte("ask"))
				assert.NilError(t, err)
				_, err = io.ReadFull(server, make([]byte, 3))
				assert.NilError(t, err)
				assert.Assert(t, !answered())
				_, err = server.Write([]byte("answer"))
				assert.NilError(t, err)
				assert.Assert(t, answered())
			}
			_, err = client.Write([]byte("more"))
			assert.NilError(t, err)
			assert.NilError(t, client.CloseWrite())
			_, err = server.WriteTo(io.Discard)
			assert.NilError(t, err)
			assert.Assert(t, !answered())
		})
	}
}
