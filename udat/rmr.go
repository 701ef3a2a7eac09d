package udat

import (
	"encoding/binary"
	"math"
)

// CreateRMR makes an unbound window in the zone. It returns ModelNotSupported if the device has no
// windows.
//
// Implements: dat_rmr_create.
func (pz *PZ) CreateRMR() (*RMR, error) {
	const op = "rmr_create"
	if err := pz.object().check(op, HandlePZ); err != nil {
		return nil, err
	}
	ia := pz.obj.ia
	if ia.device.Attr().MaxMW == 0 {
		return nil, fail(op, ModelNotSupported, SubNone, "the device has no memory windows")
	}
	if err := pz.obj.use(op, HandlePZ); err != nil {
		return nil, err
	}
	mw, err := pz.pd.AllocMW()
	if err != nil {
		pz.obj.unuse()
		return nil, failAs(op, err, SubResourceMemoryRegion)
	}
	r := &RMR{pz: pz, mw: mw}
	if err := ia.adopt(op, &r.obj, r, HandleRMR, nil); err != nil {
		mw.Close()
		pz.obj.unuse()
		return nil, err
	}
	return r, nil
}

// RMRTriplet returns a triplet for a peer. The triplet names the memory to which the window is
// bound by the latest Bind that has not failed.
//
// Extension.
func (r *RMR) RMRTriplet() RMRTriplet {
	if !r.object().alive() {
		return RMRTriplet{}
	}
	b := r.binding()
	return RMRTriplet{RMRContext: b.context, TargetAddress: b.target(), SegmentLength: b.triplet.SegmentLength}
}

// RMRParam describes a window. Triplet, Privileges and Context are those of the latest Bind that
// has not failed. They are zero while the window is not bound.
type RMRParam struct {
	IA         *IA
	PZ         *PZ
	Triplet    LMRTriplet
	Privileges MemPriv
	Context    uint32
}

// Query returns a description of the window.
//
// Implements: dat_rmr_query.
func (r *RMR) Query() (RMRParam, error) {
	const op = "rmr_query"
	if err := r.object().check(op, HandleRMR); err != nil {
		return RMRParam{}, err
	}
	p := RMRParam{IA: r.obj.ia, PZ: r.pz}
	if b := r.binding(); b.region != nil {
		p.Triplet, p.Privileges, p.Context = b.triplet, b.priv, b.context
	}
	return p, nil
}

// Free unbinds and destroys the window. A peer that still uses the window's context gets an error,
// and its connection breaks.
//
// Implements: dat_rmr_free.
func (r *RMR) Free() error {
	if err := r.object().release("rmr_free", HandleRMR, SubNone, "objects"); err != nil {
		return err
	}
	r.destroy()
	return nil
}

func (r *RMR) destroy() {
	r.posting.Lock()
	r.mw.Close()
	r.posting.Unlock()
	r.mu.Lock()
	r.dead = true
	r.unbind()
	for _, b := range r.pending {
		r.obj.ia.windows.remove(b.context, r)
		b.region.unbindWindow()
	}
	r.pending = nil
	r.mu.Unlock()
	r.pz.obj.unuse()
}

// RMRTripletSize is the length of the wire form of an [RMRTriplet], in bytes.
const RMRTripletSize = 20

// AppendBinary appends the wire form of the triplet to b: RMRContext in 4 bytes, TargetAddress in 8
// and SegmentLength in 8, each in network byte order. DAT defines no wire form; this one is the
// library's own. On every fabric it fits into the private data of a connect or an accept. The error
// is always nil.
//
// Extension.
func (t RMRTriplet) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint32(b, t.RMRContext)
	b = binary.BigEndian.AppendUint64(b, t.TargetAddress)
	return binary.BigEndian.AppendUint64(b, t.SegmentLength), nil
}

// MarshalBinary returns the wire form, as [RMRTriplet.AppendBinary] appends it. The error is always
// nil.
//
// Extension.
func (t RMRTriplet) MarshalBinary() ([]byte, error) {
	return t.AppendBinary(make([]byte, 0, RMRTripletSize))
}

// UnmarshalBinary sets the triplet from its wire form, which must be [RMRTripletSize] bytes long:
// remove the padding of private data first. If the length is wrong, or the memory would reach
// beyond the end of the address space, it returns InvalidParameter and leaves the triplet
// unchanged. UnmarshalBinary cannot check whether the peer grants the memory. A transfer with a
// false triplet breaks the connection and does no other harm. Compare SegmentLength with the size
// of the transfer.
//
// Extension.
func (t *RMRTriplet) UnmarshalBinary(b []byte) error {
	const op = "rmr_triplet_unmarshal"
	if len(b) != RMRTripletSize {
		return fail(op, InvalidParameter, SubArg2, "the wire form is %d bytes, it must have %d", len(b), RMRTripletSize)
	}
	got := RMRTriplet{
		RMRContext:    binary.BigEndian.Uint32(b),
		TargetAddress: binary.BigEndian.Uint64(b[4:]),
		SegmentLength: binary.BigEndian.Uint64(b[12:]),
	}
	if got.SegmentLength > 0 && got.SegmentLength-1 > math.MaxUint64-got.TargetAddress {
		return fail(op, InvalidParameter, SubArg2, "%d bytes at 0x%x reach beyond the end of the address space",
			got.SegmentLength, got.TargetAddress)
	}
	*t = got
	return nil
}
