package rdmanet

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/godat/godat/udat"
)

// ErrAccess is in the chain of an error if the connection broke because the peer's device has
// refused an access to its memory: the [Remote] is not valid any more, or does not allow the
// operation.
var ErrAccess = errors.New("the peer does not allow the access to its memory")

// RemoteSize is the length of the binary form of a Remote, in bytes.
const RemoteSize = udat.RMRTripletSize

// Remote identifies memory of the peer: its address, length and key. The peer sends it in its
// binary form. The peer's device checks each access, and an access that the peer has not allowed
// breaks the connection, with [ErrAccess].
type Remote struct{ t udat.RMRTriplet }

// Len returns the number of bytes.
func (r Remote) Len() uint64 { return r.t.SegmentLength }

// Slice returns the Remote of n bytes of the memory. The parameter off is the offset of the first
// byte. If r does not contain all n bytes, the error wraps syscall.EINVAL.
func (r Remote) Slice(off, n uint64) (Remote, error) {
	if off > r.Len() || n > r.Len()-off {
		return Remote{}, fmt.Errorf("rdmanet: bytes %d to %d of remote memory of %d: %w", off, off+n, r.Len(), syscall.EINVAL)
	}
	r.t.TargetAddress += off
	r.t.SegmentLength = n
	return r, nil
}

// MarshalBinary returns the binary form, RemoteSize bytes.
func (r Remote) MarshalBinary() ([]byte, error) { return r.t.MarshalBinary() }

// UnmarshalBinary decodes the binary form, which must be RemoteSize bytes long.
func (r *Remote) UnmarshalBinary(b []byte) error { return r.t.UnmarshalBinary(b) }
