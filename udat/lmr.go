package udat

import (
	"unsafe"

	"github.com/godat/godat/internal/hostmem"
	"github.com/godat/godat/udat/internal/fabric"
)

// CreateLMR registers buf. The memory remains the caller's and is pinned until Free. While
// operations on the memory are in flight, the rules in the section Memory of the package comment
// apply. The error is InvalidParameter if buf is empty. It is InsufficientResources if the memory
// cannot be locked, or if it is larger than the memory of the host or of the control group; its
// text names the limit.
//
// Implements: dat_lmr_create.
func (ia *IA) CreateLMR(pz *PZ, buf []byte, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.mayRegister(op, pz, len(buf), priv); err != nil {
		return nil, err
	}
	return ia.register(op, &LMR{buf: buf, kind: MemVirtual}, pz, priv)
}

// AllocLMR allocates size bytes of zeroed memory, aligned to a page, and registers it. On Unix the
// memory is outside the Go heap, and Free unmaps it: a program that later uses a slice of it
// crashes.
//
// Extension.
func (ia *IA) AllocLMR(pz *PZ, size int, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.mayRegister(op, pz, size, priv); err != nil {
		return nil, err
	}
	buf, release, err := allocPages(size)
	if err != nil {
		return nil, &Error{Op: op, Type: InsufficientResources, Subtype: SubResourceMemory, Err: err}
	}
	return ia.register(op, &LMR{buf: buf, kind: MemVirtual, pages: &pages{release: release}}, pz, priv)
}

// CreateLMRFromLMR registers the memory of another region once more, in another zone or with other
// privileges. The two regions may be freed in any order.
//
// Implements: dat_lmr_create with DAT_MEM_TYPE_LMR.
func (ia *IA) CreateLMRFromLMR(pz *PZ, region *LMR, priv MemPriv) (*LMR, error) {
	const op = "lmr_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	if err := region.object().use(op, HandleLMR); err != nil { // released when the new region also pins the memory
		return nil, err
	}
	defer region.obj.unuse()
	if err := sameIA(op, ia, &region.obj); err != nil {
		return nil, err
	}
	if err := ia.mayRegister(op, pz, len(region.buf), priv); err != nil {
		return nil, err
	}
	return ia.register(op, &LMR{buf: region.buf, kind: MemLMR, pages: region.pages, from: region}, pz, priv)
}

// CreateLMRShared registers memory that several processes share (mapped with MAP_SHARED, or from
// shm). Each process registers the memory with the same id. On Linux the call returns InvalidState
// if the memory is not shared; other systems do not check that. Otherwise it is like CreateLMR.
//
// Implements: dat_lmr_create with DAT_MEM_TYPE_SHARED_VIRTUAL.
func (ia *IA) CreateLMRShared(pz *PZ, buf []byte, id SharedMemoryID, priv MemPriv) (*LMR, error) {
	const op = "lmr_create_shared" // the same C call as lmr_create, with other arguments in Go
	if err := ia.mayRegister(op, pz, len(buf), priv); err != nil {
		return nil, err
	}
	if !isShared(buf) {
		return nil, fail(op, InvalidState, SubNone, "the %d bytes at %p are not memory that processes share", len(buf),
			unsafe.SliceData(buf))
	}
	return ia.register(op, &LMR{buf: buf, kind: MemSharedVirtual, id: id}, pz, priv)
}

func (ia *IA) mayRegister(op string, pz *PZ, size int, priv MemPriv) error {
	if err := ia.object().check(op, HandleIA); err != nil {
		return err
	}
	if err := pz.object().check(op, HandlePZ); err != nil {
		return err
	}
	if err := sameIA(op, ia, &pz.obj); err != nil {
		return err
	}
	if limit := ia.device.Attr().MaxMRSize; size <= 0 || uint64(size) > limit {
		return fail(op, InvalidParameter, SubArg4, "length is %d bytes, must be from 1 to %d", size, limit)
	}
	// Devices pin the whole region. An attempt to pin too much memory takes very long and fails late,
	// or the kernel kills the process.
	if size >= largeLMR {
		if limit := hostmem.Limit(); uint64(size) > limit {
			return fail(op, InsufficientResources, SubResourceMemory,
				"length is %d bytes, this process may use %d bytes of memory (of the host, or of its control group)", size, limit)
		}
	}
	if priv&^privKnown != 0 {
		return fail(op, InvalidParameter, SubArg6, "privileges %v: only %v are known", priv, privKnown)
	}
	return nil
}

// largeLMR is the least size of a region that is compared with the memory of the host. Smaller
// regions are not compared, because it takes time to read the limit from files.
const largeLMR = 16 << 20

// register pins and registers the memory of l, and makes l a live object of the adapter.
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
	l.remote = mr.RemoteAddr()
	ia.regions.Store(l.lkey, l)
	if err := ia.adopt(op, &l.obj, l, HandleLMR, nil); err != nil {
		ia.regions.Delete(l.lkey)
		mr.Close()
		pz.obj.unuse()
		return nil, err
	}
	return l, nil
}

// access converts privileges to the access rights of the fabric. Local read needs no right.
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

// Bytes returns the registered memory, or nil after the region has been freed.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Bytes() []byte {
	if !l.object().alive() {
		return nil
	}
	return l.buf
}

// Context returns the lmr_context of the region (the local key of verbs), or 0 after the region has
// been freed.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Context() uint32 {
	if !l.object().alive() {
		return 0
	}
	return l.lkey
}

// LMRByContext returns the region whose [LMR.Context] is context. It is for programs that store
// contexts, for example in a DAT_LMR_TRIPLET. It returns InvalidParameter if no region of the
// adapter has the context. After a region has been freed, another region may get the same context.
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

// RMRContext returns the context that a peer needs for RDMA to the region, or 0 if the region has
// no remote privilege or has been freed.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) RMRContext() uint32 {
	if !l.object().alive() || l.priv&(PrivRemoteRead|PrivRemoteWrite|PrivRemoteAtomic) == 0 {
		return 0
	}
	return l.mr.RKey()
}

// Triplet returns a triplet for n bytes of the region at offset off. It does not check the range: a
// post of a triplet outside the region returns InvalidParameter.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) Triplet(off, n int) LMRTriplet {
	if l == nil {
		return LMRTriplet{SegmentLength: uint64(n)}
	}
	return LMRTriplet{LMR: l, VirtualAddress: l.addr + uint64(off), SegmentLength: uint64(n)}
}

// RMRTriplet returns a triplet for a peer, for n bytes of the region at offset off. On the devices
// tcp and mem0 the target address is not that of the memory: it tells a peer nothing of where this
// process has its memory. [WithVirtualAddresses] changes that.
//
// Extension. It is part of dat_lmr_create.
func (l *LMR) RMRTriplet(off, n int) RMRTriplet {
	if l == nil {
		return RMRTriplet{SegmentLength: uint64(n)}
	}
	return RMRTriplet{RMRContext: l.RMRContext(), TargetAddress: l.remote + uint64(off), SegmentLength: uint64(n)}
}

// Free deregisters the memory. It returns InvalidState while an RMR is bound to the region.
// Operations in flight that use the region, at this end or at a peer, fail with a protection error
// and break their connections. The memory given to CreateLMR stays valid; the memory of AllocLMR is
// unmapped when the last region over it is freed. Posts may run concurrently: Free waits for posts
// in progress that use the region, and later posts return an error.
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

// bindWindow counts a window that is bound to the region, and returns false if the region has been
// freed. unbindWindow undoes the count. If l is nil, unbindWindow does nothing, and bindWindow only
// returns true.
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
	l.obj.ia.regions.Delete(l.lkey) // before Close, because after it another region may get the context
	l.pz.awaitPosts()
	l.mr.Close()
	l.pz.obj.unuse()
	l.unpin()
}

// awaitPosts waits for all posts in progress in the zone; none of the library's locks is held. A
// post holds the lock of its endpoint's requests from the check of its regions until the device has
// accepted the work and copied inline data. Therefore, once awaitPosts has acquired that lock, no
// post uses a region that was freed before.
func (pz *PZ) awaitPosts() {
	for _, ep := range pz.posters() {
		ep.requests.mu.Lock()
		//lint:ignore SA2001 the lock is taken to wait for whoever has it
		ep.requests.mu.Unlock()
	}
}

// pin pins the memory of l. If the memory is that of AllocLMR, pin counts l as a user of it. unpin
// undoes pin.
func (l *LMR) pin() {
	if l.pages == nil {
		l.pinner.Pin(unsafe.SliceData(l.buf))
		return
	}
	l.pages.regions.Add(1)
}

func (l *LMR) unpin() {
	l.mu.Lock()
	l.freed = true // loads in progress have ended, because they hold l.mu
	l.mu.Unlock()
	if l.pages == nil {
		l.pinner.Unpin()
		return
	}
	if l.pages.regions.Add(-1) == 0 {
		l.pages.release()
	}
}
