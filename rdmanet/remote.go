package rdmanet

import (
	"fmt"
	"syscall"

	"github.com/godat/godat/udat"
)

// RemoteSize is the length of a Remote on the wire, in bytes.
const RemoteSize = udat.RMRTripletSize

// Remote names memory of the peer. Its wire form comes from the peer: the device checks each use of
// it, and one that the peer does not allow breaks the connection.
type Remote struct{ t udat.RMRTriplet }

// Len is the number of bytes.
func (r Remote) Len() uint64 { return r.t.SegmentLength }

// Slice names n of the bytes, from off on.
func (r Remote) Slice(off, n uint64) (Remote, error) {
	if off > r.Len() || n > r.Len()-off {
		return Remote{}, fmt.Errorf("rdmanet: bytes %d to %d of remote memory of %d: %w", off, off+n, r.Len(), syscall.EINVAL)
	}
	r.t.TargetAddress += off
	r.t.SegmentLength = n
	return r, nil
}

// MarshalBinary returns the wire form, RemoteSize bytes.
func (r Remote) MarshalBinary() ([]byte, error) { return r.t.MarshalBinary() }

// UnmarshalBinary reads the wire form, which must be RemoteSize bytes long.
func (r *Remote) UnmarshalBinary(b []byte) error { return r.t.UnmarshalBinary(b) }
