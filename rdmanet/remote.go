package rdmanet

import (
	"fmt"
	"syscall"

	"github.com/godat/godat/udat"
)

// RemoteSize is the length of a Remote's wire form, in bytes.
const RemoteSize = udat.RMRTripletSize

// Remote is the name of memory of the peer, which the peer sends in its wire form. The peer's
// device checks each use, and a use that the peer does not allow breaks the connection.
type Remote struct{ t udat.RMRTriplet }

// Len returns the number of bytes.
func (r Remote) Len() uint64 { return r.t.SegmentLength }

// Slice returns the name of n bytes of the memory, from offset off on.
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

// UnmarshalBinary decodes the wire form, which must be RemoteSize bytes long.
func (r *Remote) UnmarshalBinary(b []byte) error { return r.t.UnmarshalBinary(b) }
