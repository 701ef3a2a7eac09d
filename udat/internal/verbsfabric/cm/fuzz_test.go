package cm

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
)

// FuzzPrivate unpacks the private data of a request or a reply, which a peer fills in as it likes.
// The result is a part of the field, and contains all bytes that the peer may have sent.
func FuzzPrivate(f *testing.F) {
	f.Add([]byte("hello"), 5, false)
	f.Add(append([]byte("hello"), make([]byte, roomRequest-5)...), 5, false)
	f.Add(make([]byte, roomRequest), -1, false)
	f.Add([]byte("told less than there is"), 3, false)
	f.Add([]byte("told more"), 255, false)
	f.Add([]byte(nil), 0, true)
	f.Fuzz(func(t *testing.T, room []byte, told int, iwarp bool) {
		data, padded := unpack(room, told, iwarp)
		assert.Assert(t, bytes.HasPrefix(room, data))
		assert.Assert(t, len(bytes.TrimRight(room[len(data):], "\x00")) == 0, "data is lost")
		assert.Assert(t, padded || iwarp || len(data) == told)
	})
}

// FuzzReject unpacks the data of a reject by this library, by OpenFabrics DAPL, or by any other
// program.
func FuzzReject(f *testing.F) {
	f.Add(packReject([]byte("busy"), true), false)
	f.Add(packReject([]byte("busy"), false), false)
	f.Add(append(packReject([]byte("busy"), true), make([]byte, 80)...), false)
	f.Add([]byte(rejectMarker), true)
	f.Add([]byte(magicBytes), false)
	f.Add([]byte(magicBytes+"\xff"), false)
	f.Add(make([]byte, roomReject), false)
	f.Fuzz(func(t *testing.T, room []byte, iwarp bool) {
		data, padded, byConsumer := unpackReject(room, iwarp)
		assert.Assert(t, bytes.Contains(room, data) && len(data) <= len(room))
		if byConsumer {
			assert.Assert(t, len(data)+len(rejectMarker) <= len(room))
			assert.Assert(t, padded || iwarp || bytes.HasPrefix(room, []byte(magicBytes)))
		}
		if len(data) > roomReject-len(rejectMarker) || iwarp {
			return
		}
		wire := make([]byte, roomReject)
		copy(wire, packReject(data, true))
		again, padded, byConsumer := unpackReject(wire, false)
		assert.Assert(t, bytes.Equal(again, data) && !padded && byConsumer, "%q of %q", again, data)
	})
}
