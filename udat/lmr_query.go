package udat

// LMRParam describes a region. Sizes are in bytes.
type LMRParam struct {
	IA                *IA
	MemType           MemType
	Region            RegionDescription
	Length            uint64
	PZ                *PZ
	Privileges        MemPriv
	LMRContext        uint32
	RMRContext        uint32 // 0 if the region has no remote privilege
	RegisteredSize    uint64
	RegisteredAddress uint64
}

// RegionDescription describes the memory that a region was made from. The memory type determines
// which fields are set.
type RegionDescription struct {
	Memory         []byte         // set for MemVirtual and MemSharedVirtual
	LMR            *LMR           // set for MemLMR; this region may have been freed
	SharedMemoryID SharedMemoryID // set for MemSharedVirtual
}

// Query returns a description of the region.
//
// Implements: dat_lmr_query.
func (l *LMR) Query() (LMRParam, error) {
	const op = "lmr_query"
	if err := l.object().check(op, HandleLMR); err != nil {
		return LMRParam{}, err
	}
	p := LMRParam{
		IA: l.obj.ia, MemType: l.kind, Length: uint64(len(l.buf)), PZ: l.pz, Privileges: l.priv,
		LMRContext: l.lkey, RMRContext: l.RMRContext(), RegisteredSize: uint64(len(l.buf)), RegisteredAddress: l.addr,
	}
	if l.kind == MemLMR {
		p.Region.LMR = l.from
	} else {
		p.Region.Memory, p.Region.SharedMemoryID = l.buf, l.id
	}
	return p, nil
}

// LMRSyncRDMARead makes local changes to the segments visible to later RDMA reads of peers. The
// call is needed only if ProviderAttr.LMRSyncReq is true. It is false on all devices of this
// library, so the call only checks its arguments. It returns InvalidParameter if a region has been
// freed or belongs to another adapter, or if a segment is outside its region. The segments may be
// of different regions and zones.
//
// Implements: dat_lmr_sync_rdma_read.
func (ia *IA) LMRSyncRDMARead(segments []LMRTriplet) error {
	return ia.checkSync("lmr_sync_rdma_read", segments)
}

// LMRSyncRDMAWrite makes RDMA writes of peers to the segments visible to later local accesses, and
// local changes visible to later RDMA writes. Otherwise it is like LMRSyncRDMARead.
//
// Implements: dat_lmr_sync_rdma_write.
func (ia *IA) LMRSyncRDMAWrite(segments []LMRTriplet) error {
	return ia.checkSync("lmr_sync_rdma_write", segments)
}

func (ia *IA) checkSync(op string, segments []LMRTriplet) error {
	if err := ia.object().check(op, HandleIA); err != nil {
		return err
	}
	for i := range segments {
		t := &segments[i]
		switch {
		case t.SegmentLength == 0:
		case t.LMR == nil || !t.LMR.obj.live.Load() || t.LMR.obj.ia != ia:
			return fail(op, InvalidParameter, SubArg2,
				"segment %d: its region is nil, has been freed, or is of another adapter", i)
		default:
			if err := t.inside(op, SubArg2, i); err != nil {
				return err
			}
		}
	}
	return nil
}
