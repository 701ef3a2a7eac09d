package cverbs

// ReregFlags select what MR.Rereg changes.
type ReregFlags uint32

// What MR.Rereg changes, with the values of enum ibv_rereg_mr_flags.
const (
	ReregTranslation ReregFlags = 1 << 0 // the memory
	ReregPD          ReregFlags = 1 << 1 // the protection domain
	ReregAccess      ReregFlags = 1 << 2 // the access rights
)

// Rereg is a change of a memory region. Fields that Flags does not select are ignored.
type Rereg struct {
	Flags  ReregFlags
	Buf    []byte // ReregTranslation: the region's new memory, as in PD.RegMR
	PD     *PD    // ReregPD
	Access AccessFlags
}

// MRAdvice is what PD.AdviseMR asks the device to do with memory.
type MRAdvice uint32

// Advice on memory, with the values of enum ib_uverbs_advise_mr_advice.
const (
	AdvicePrefetch        MRAdvice = 0 // map the pages for reading
	AdvicePrefetchWrite   MRAdvice = 1 // map the pages for writing; the regions need AccessLocalWrite
	AdvicePrefetchNoFault MRAdvice = 2 // map only the pages that are in memory; page in no others
)

// AdviseFlags modify PD.AdviseMR.
type AdviseFlags uint32

// Flags of advice, with the values of enum ib_uverbs_advise_mr_flag.
const (
	AdviseFlush AdviseFlags = 1 << 0 // return only when the device is done
)

// ODPCaps are a device's capabilities for on-demand paging: the pages of a region with
// AccessOnDemand are not pinned, but mapped when the device uses them. Soft-RoCE of Linux 7.2
// reports ODPSupport, but writes data that is meant for the middle of a page to the start of the
// page.
type ODPCaps uint64

// On-demand paging, with the values of enum ibv_odp_general_caps.
const (
	ODPSupport         ODPCaps = 1 << 0
	ODPSupportImplicit ODPCaps = 1 << 1 // a region may be the whole address space
)

// ODPOps are the operations of a transport that may use regions with on-demand paging.
type ODPOps uint32

// Operations, with the values of enum ibv_odp_transport_cap_bits.
const (
	ODPSupportSend    ODPOps = 1 << 0
	ODPSupportRecv    ODPOps = 1 << 1
	ODPSupportWrite   ODPOps = 1 << 2
	ODPSupportRead    ODPOps = 1 << 3
	ODPSupportAtomic  ODPOps = 1 << 4
	ODPSupportSRQRecv ODPOps = 1 << 5

	// The headers of rdma-core 44 lack these.
	ODPSupportFlush       ODPOps = 1 << 6
	ODPSupportAtomicWrite ODPOps = 1 << 7
)

var odpOpNames = []bitName{{1 << 0, "SEND"}, {1 << 1, "RECV"}, {1 << 2, "WRITE"}, {1 << 3, "READ"}, {1 << 4, "ATOMIC"},
	{1 << 5, "SRQ_RECV"}, {1 << 6, "FLUSH"}, {1 << 7, "ATOMIC_WRITE"}}

// String joins the names of the operations with |.
//
// Extension.
func (o ODPOps) String() string { return bitNames(odpOpNames, o) }
