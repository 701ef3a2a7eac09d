package udat

import (
	"unsafe"

	"github.com/godat/godat/internal/hostmem"
	"github.com/godat/godat/udat/internal/fabric"
)

// CreateLMR registers buf. The memory stays the caller's and is pinned until Free; do not use it
// while operations on it are in flight. An empty buf is InvalidParameter; memory that cannot be
// locked, and more than the host or the control group has, is InsufficientResources, with the limit
// in the text.
//
// Implements: dat_lmr_create.
func (ia *IA) CreateLMR(pz *PZ, buf []byte, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.mayRegister(op, pz, uint64(len(buf)), priv); err != nil {
		return nil, err
	}
	return ia.register(op, &LMR{buf: buf, kind: MemVirtual}, pz, priv)
}

// AllocLMR registers size bytes of new zeroed memory outside the Go heap, aligned to a page. Free
// unmaps it: whoever touches a slice of it afterwards ends the program.
//
// Extension.
func (ia *IA) AllocLMR(pz *PZ, size int, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.mayRegister(op, pz, uint64(max(size, 0)), priv); err != nil {
		return nil, err
	}
	buf, release, err := allocPages(size)
	if err != nil {
		return nil, &Error{Op: op, Type: InsufficientResources, Subtype: SubResourceMemory, Err: err}
	}
	return ia.register(op, &LMR{buf: buf, kind: MemVirtual, pages: &pages{release: release}}, pz, priv)
}

// CreateLMRFromLMR registers the memory of another region once more, in another zone or with other
// privileges. Either of the two may be freed first.
//
// Implements: dat_lmr_create with DAT_MEM_TYPE_LMR.
func (ia *IA) CreateLMRFromLMR(pz *PZ, region *LMR, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	if err := region.object().use(op, HandleLMR); err != nil { // until the new region holds the memory too
		return nil, err
	}
	defer region.obj.unuse()
	if err := sameIA(op, ia, &region.obj); err != nil {
		return nil, err
	}
	if err := ia.mayRegister(op, pz, uint64(len(region.buf)), priv); err != nil {
		return nil, err
	}
	return ia.register(op, &LMR{buf: region.buf, kind: MemLMR, pages: region.pages, from: region}, pz, priv)
}

// CreateLMRShared registers memory that several processes share (mapped MAP_SHARED, or from shm);
// each registers it under the same id. On Linux memory that is not shared is InvalidState; other
// systems do not check. All else is as with CreateLMR.
//
// Implements: dat_lmr_create with DAT_MEM_TYPE_SHARED_VIRTUAL.
func (ia *IA) CreateLMRShared(pz *PZ, buf []byte, id SharedMemoryID, priv MemPriv) (*LMR, error) {
	const op = "lmr_create_shared" // dat_lmr_create with other arguments in Go
	if err := ia.mayRegister(op, pz, uint64(len(buf)), priv); err != nil {
		return nil, err
	}
	if !isShared(buf) {
		return nil, fail(op, InvalidState, SubNone, "the %d bytes at %p are not memory that processes share", len(buf),
			unsafe.SliceData(buf))
	}
	return ia.register(op, &LMR{buf: buf, kind: MemSharedVirtual, id: id}, pz, priv)
}

func (ia *IA) mayRegister(op string, pz *PZ, size uint64, priv MemPriv) error {
	if err := ia.object().check(op, HandleIA); err != nil {
		return err
	}
	if err := pz.object().check(op, HandlePZ); err != nil {
		return err
	}
	if err := sameIA(op, ia, &pz.obj); err != nil {
		return err
	}
	if limit := ia.device.Attr().MaxMRSize; size == 0 || size > limit {
		return fail(op, InvalidParameter, SubArg4, "length is %d bytes, must be from 1 to %d", size, limit)
	}
	// Devices pin it all: too much takes for ever, fails late or kills the process.
	if size >= largeLMR {
		if limit := hostmem.Limit(); size > limit {
			return fail(op, InsufficientResources, SubResourceMemory,
				"length is %d bytes, this process may use %d bytes of memory (of the host, or of its control group)", size, limit)
		}
	}
	if priv&^privKnown != 0 {
		return fail(op, InvalidParameter, SubArg6, "privileges %v: only %v are known", priv, privKnown)
	}
	return nil
}

// largeLMR is the least size of a region that is compared with the memory of the host, which is
// read from files.
const largeLMR = 16 << 20

// register pins and registers the memory of l, and makes l a live object.
func (ia *IA) register(op string, l *LMR, pz *PZ, priv MemPriv) (_ *LMR, err error) {
	l.pin()
	defer func() {
		if err != nil {
			l.unpin()
		}
	}()
	if err := pz.obj.use(op, HandlePZ); err != nil {
		return nil, err
	}
	mr, err := pz.pd.RegMR(l.buf, ia.access(priv))
	if err != nil {
		pz.obj.unuse()
		return nil, failAs(op, err, SubResourceMemoryRegion)
	}
	l.mr, l.pz, l.priv = mr, pz, priv
	l.lkey, l.addr = mr.LKey(), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(l.buf))))
	ia.regions.Store(l.lkey, l)
	if err := ia.adopt(op, &l.obj, l, HandleLMR, nil); err != nil {
		ia.regions.Delete(l.lkey)
		mr.Close()
		pz.obj.unuse()
		return nil, err
	}
	return l, nil
}

// access is what the fabric must grant for the privileges. It has no bit for local read.
func (ia *IA) access(priv MemPriv) fabric.Access {
	attr := ia.device.Attr()
	var a fabric.Access
	if priv&PrivLocalWrite != 0 {
		a |= fabric.LocalWrite
		if attr.ReadSinkRemote {
			a |= fabric.RemoteWrite
		}
	}
	if priv&PrivRemoteRead != 0 {
		a |= fabric.RemoteRead
	}
	if priv&PrivRemoteWrite != 0 {
		a |= fabric.RemoteWrite
	}
	if priv&PrivRemoteAtomic != 0 {
		a |= fabric.RemoteAtomic
	}
	if attr.MaxMW > 0 {
		a |= fabric.WindowBind
	}
	return a
}

// Bytes is the registered memory, nil once the region has been freed.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Bytes() []byte {
	if !l.object().alive() {
		return nil
	}
	return l.buf
}

// Context is the region's lmr_context (the local key of verbs).
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Context() uint32 {
	if !l.object().alive() {
		return 0
	}
	return l.lkey
}

// LMRByContext returns the region with the given lmr_context, as Context reports it, for programs
// that keep contexts, as a DAT_LMR_TRIPLET does. A context of no region of the adapter is
// InvalidParameter. Contexts are used again: once a region is freed, another may have its context.
//
// Extension.
func (ia *IA) LMRByContext(context uint32) (*LMR, error) {
	const op = "lmr_by_context"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	if l, ok := ia.regions.Load(context); ok && l.(*LMR).obj.alive() {
		return l.(*LMR), nil
	}
	return nil, fail(op, InvalidParameter, SubArg2, "no region of the adapter has the context 0x%x", context)
}

// RMRContext is the context that a peer needs for RDMA to the region, 0 without a remote privilege.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) RMRContext() uint32 {
	if !l.object().alive() || l.priv&(PrivRemoteRead|PrivRemoteWrite|PrivRemoteAtomic) == 0 {
		return 0
	}
	return l.mr.RKey()
}

// Triplet names n bytes of the region at off. It checks nothing: a post of a triplet outside the
// region is InvalidParameter.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Triplet(off, n int) LMRTriplet {
	if l == nil {
		return LMRTriplet{SegmentLength: uint64(n)}
	}
	return LMRTriplet{LMR: l, VirtualAddress: l.addr + uint64(off), SegmentLength: uint64(n)}
}

// RMRTriplet names n bytes of the region at off for a peer.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) RMRTriplet(off, n int) RMRTriplet {
	t := l.Triplet(off, n)
	return RMRTriplet{RMRContext: l.RMRContext(), TargetAddress: t.VirtualAddress, SegmentLength: t.SegmentLength}
}

// Free deregisters the memory; InvalidState while an RMR is bound to it. Operations in flight that
// name the region, local or remote, fail with a protection error and break their connections. The
// caller's memory stays; that of AllocLMR is unmapped with the last region over it. Free may run
// beside posts that name the region: it waits for posts under way, and later ones are refused.
//
// Implements: dat_lmr_free.
func (l *LMR) Free() error {
	const op = "lmr_free"
	if err := l.object().check(op, HandleLMR); err != nil {
		return err
	}
	unbound := func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.windows > 0 {
			return fail(op, InvalidState, SubStateLMRInUse, "%d memory windows are bound to it", l.windows)
		}
		l.freed = true
		return nil
	}
	if err := l.obj.releaseIf(op, HandleLMR, SubStateLMRInUse, "objects", unbound); err != nil {
		return err
	}
	l.destroy()
	return nil
}

// bindWindow counts a window that is bound to the region, unless the region has been freed;
// unbindWindow undoes it. Both take nil as no region.
func (l *LMR) bindWindow() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.freed {
		l.windows++
	}
	return !l.freed
}

func (l *LMR) unbindWindow() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.windows--
	l.mu.Unlock()
}

func (l *LMR) destroy() {
	l.obj.ia.regions.Delete(l.lkey) // before another region may have the context
	l.pz.awaitPosts()
	l.mr.Close()
	l.pz.obj.unuse()
	l.unpin()
}

// awaitPosts waits for all posts under way in the zone; none of the library's locks is held. A post
// holds the lock of its endpoint's requests from the check of its regions until the device has
// taken the work and copied inline data. Once that lock has been taken here, no post uses a region
// that was freed before.
func (pz *PZ) awaitPosts() {
	for _, ep := range pz.posters() {
		ep.requests.mu.Lock()
		//lint:ignore SA2001 the lock is taken to wait for whoever has it
		ep.requests.mu.Unlock()
	}
}

// pin pins the memory, or counts the region as a user of its pages; unpin undoes it.
func (l *LMR) pin() {
	if l.pages == nil {
		l.pinner.Pin(unsafe.SliceData(l.buf))
		return
	}
	l.pages.regions.Add(1)
}

func (l *LMR) unpin() {
	l.mu.Lock()
	l.freed = true // loads under way have ended
	l.mu.Unlock()
	if l.pages == nil {
		l.pinner.Unpin()
		return
	}
	if l.pages.regions.Add(-1) == 0 {
		l.pages.release()
	}
}
