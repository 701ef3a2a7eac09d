package cverbs

// AccessFlags are the access rights of a memory region, a memory window or a queue pair.
type AccessFlags uint32

// Access flags, with the values of enum ibv_access_flags. Local reads need no flag.
const (
	AccessLocalWrite      AccessFlags = 1 << 0
	AccessRemoteWrite     AccessFlags = 1 << 1 // on a region: needs AccessLocalWrite
	AccessRemoteRead      AccessFlags = 1 << 2
	AccessRemoteAtomic    AccessFlags = 1 << 3 // on a region: needs AccessLocalWrite
	AccessMWBind          AccessFlags = 1 << 4 // windows may be bound to the region
	AccessZeroBased       AccessFlags = 1 << 5
	AccessOnDemand        AccessFlags = 1 << 6
	AccessHugeTLB         AccessFlags = 1 << 7
	AccessRelaxedOrdering AccessFlags = 1 << 20
)

var accessNames = []bitName{
	{1 << 0, "LOCAL_WRITE"}, {1 << 1, "REMOTE_WRITE"}, {1 << 2, "REMOTE_READ"}, {1 << 3, "REMOTE_ATOMIC"},
	{1 << 4, "MW_BIND"},
	{1 << 5, "ZERO_BASED"}, {1 << 6, "ON_DEMAND"}, {1 << 7, "HUGETLB"}, {1 << 20, "RELAXED_ORDERING"},
}

// String joins the names of the flags with |.
//
// Extension.
func (a AccessFlags) String() string { return bitNames(accessNames, a) }

// MWType is the kind of a memory window.
type MWType uint32

// Memory window types, with the values of enum ibv_mw_type.
const (
	MWType1 MWType = 1 // bound by ibv_bind_mw; the driver chooses the key
	MWType2 MWType = 2 // bound by a work request; the peer can invalidate the key
)
