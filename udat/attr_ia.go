package udat

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// IAAttr are the attributes of an adapter, as the device reports them. The limits are upper bounds
// that all users of the device share. Sizes are in bytes.
type IAAttr struct {
	AdapterName                   string // the name that Open was called with
	VendorName                    string // vendor of the device
	HardwareVersionMajor          int
	HardwareVersionMinor          int
	FirmwareVersionMajor          int
	FirmwareVersionMinor          int
	Addr                          netip.Addr // the address to which peers connect
	MaxEPs                        int
	MaxDTOPerEP                   int // largest MaxRequestDTOs and MaxRecvDTOs of an endpoint that shares no dispatcher
	MaxRDMAReadPerEPIn            int // RDMA reads and atomics in flight on an endpoint, as target
	MaxRDMAReadPerEPOut           int // RDMA reads and atomics in flight on an endpoint, as initiator
	MaxEVDs                       int
	MaxEVDQLen                    int
	MaxIOVSegmentsPerDTO          int
	MaxLMRs                       int
	MaxLMRBlockSize               uint64
	MaxLMRVirtualAddress          uint64
	MaxPZs                        int
	MaxMessageSize                uint64
	MaxRDMASize                   uint64
	MaxRMRs                       int // 0: the device has no memory windows
	MaxRMRTargetAddress           uint64
	MaxSRQs                       int // 0: the device has no shared receive queues
	MaxEPPerSRQ                   int
	MaxRecvPerSRQ                 int
	MaxIOVSegmentsPerRDMARead     int
	MaxIOVSegmentsPerRDMAWrite    int
	MaxRDMAReadIn                 int         // RDMA reads and atomics in flight on the adapter, as target
	MaxRDMAReadOut                int         // RDMA reads and atomics in flight on the adapter, as initiator
	MaxRDMAReadPerEPInGuaranteed  bool        // all MaxEPs endpoints can have MaxRDMAReadPerEPIn in flight at once
	MaxRDMAReadPerEPOutGuaranteed bool        // all MaxEPs endpoints can have MaxRDMAReadPerEPOut in flight at once
	TransportAttr                 []NamedAttr // the attributes TRANSPORT, PATH_MTU and PORT_STATE
	VendorAttr                    []NamedAttr // the attributes VENDOR_ID, VENDOR_PART_ID and FIRMWARE_VERSION
}

// ProviderAttr are the attributes of this library for an open adapter. Sizes are in bytes.
type ProviderAttr struct {
	ProviderName             string
	ProviderVersionMajor     int
	ProviderVersionMinor     int
	DAPLVersionMajor         int // major version of uDAPL: 1
	DAPLVersionMinor         int // minor version of uDAPL: 2
	LMRMemTypesSupported     []MemType
	IOVOwnershipOnReturn     IOVOwnership
	QoSSupported             QoS
	CompletionFlagsSupported CompletionFlags
	ThreadSafe               bool
	MaxPrivateDataSize       int // for Connect, DupConnect and Accept; 56 on InfiniBand and RoCE, fewer than the 64 of DAT
	SupportsMultipath        bool
	EPCreator                EPCreator
	PZSupport                PZSupport
	OptimalBufferAlignment   int
	EVDStreamMerging         [6][6]bool // [i][j]: EVDStreams[i] and EVDStreams[j] may share a dispatcher
	SRQSupported             bool
	SRQWatermarksSupported   SRQWatermarks
	SRQEPPZDifference        bool // an endpoint may be in another zone than its shared receive queue
	SRQInfoSupported         SRQInfo
	EPRecvInfoSupported      EPRecvInfo // for endpoints without a shared receive queue
	LMRSyncReq               bool       // LMRSyncRDMARead and LMRSyncRDMAWrite are needed
	DTOAsyncReturnGuaranteed bool       // true: an operation's errors are completions, never errors of the post
	RDMAWriteForRDMARead     bool       // the destination of an RDMA read needs remote write, which the library adds
	ProviderSpecificAttr     []NamedAttr
	MaxRejectDataSize        int // Extension. private data of CR.Reject; 144 on InfiniBand and RoCE
}

// IOVOwnership says who owns the array of segments after a post has returned.
type IOVOwnership uint32

// IOV ownerships.
const (
	IOVConsumer      IOVOwnership = 0 // the Consumer owns it, because the post copies it
	IOVProviderNoMod IOVOwnership = 1
	IOVProviderMod   IOVOwnership = 2
)

// EPCreator says who makes the endpoints of public service points.
type EPCreator uint32

// Endpoint creators.
const (
	EPCreatorNever   EPCreator = 0 // always the Consumer
	EPCreatorIfAsked EPCreator = 1 // the provider if the service point is made with PSPProvider, else the Consumer
	EPCreatorAlways  EPCreator = 2
)

// PZSupport is the kind of protection that zones provide.
type PZSupport uint32

// Kinds of protection.
const (
	PZUnique    PZSupport = 0
	PZSame      PZSupport = 1
	PZShareable PZSupport = 2
)

// SRQWatermarks is the set of watermarks that a device supports for a shared receive queue and its
// endpoints.
type SRQWatermarks uint32

// Watermarks of a shared receive queue and of its endpoints.
const (
	SRQWatermarkLow      SRQWatermarks = 0x001
	SRQWatermarkSoftHigh SRQWatermarks = 0x010
	SRQWatermarkHardHigh SRQWatermarks = 0x100
)

// SRQInfo is the set of counts that [SRQ.Query] reports.
type SRQInfo uint32

// Counts of a shared receive queue.
const (
	SRQInfoAvailable   SRQInfo = 0x01
	SRQInfoOutstanding SRQInfo = 0x10
)

// EPRecvInfo is the set of counts that [EP.RecvQuery] reports.
type EPRecvInfo uint32

// Counts of an endpoint's receives.
const (
	EPRecvInfoAllocated EPRecvInfo = 0x01
	EPRecvInfoSpan      EPRecvInfo = 0x10
)

// EVDStreams lists the streams in the order of the rows and columns of EVDStreamMerging.
var EVDStreams = [6]EVDFlags{EVDSoftware, EVDCR, EVDDTO, EVDConnection, EVDRMRBind, EVDAsync}

// Names in ProviderAttr.ProviderSpecificAttr. The value of each is "TRUE" if the device has the
// feature, else "FALSE".
const (
	AttrFetchAndAdd        = "DAT_IB_FETCH_AND_ADD"
	AttrCmpAndSwap         = "DAT_IB_CMP_AND_SWAP"
	AttrImmediateData      = "DAT_IB_IMMED_DATA"
	AttrSendWithInvalidate = "SEND_WITH_INVALIDATE"
	// the device restricts peers to the bounds of a window, not only to those of the region
	AttrRMRExactBounds = "RMR_EXACT_BOUNDS"
	AttrRNRRetryFinite = "RNR_RETRY_FINITE" // the device obeys the limit of WithRNRRetry
)

// Query returns the dispatcher of asynchronous events, the attributes of the adapter, and the
// attributes of the library. The dispatcher is nil if the adapter was opened without one.
//
// Implements: dat_ia_query.
func (ia *IA) Query() (*EVD, IAAttr, ProviderAttr, error) {
	const op = "ia_query"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, IAAttr{}, ProviderAttr{}, err
	}
	d := ia.device.Attr()
	return ia.AsyncEVD(), ia.attr(&d), providerAttr(&d), nil
}

func (ia *IA) attr(d *fabric.Attr) IAAttr {
	major, minor := splitVersion(d.FWVersion)
	return IAAttr{
		AdapterName:                   ia.name,
		VendorName:                    d.VendorName,
		HardwareVersionMajor:          int(d.HWVersion),
		FirmwareVersionMajor:          major,
		FirmwareVersionMinor:          minor,
		Addr:                          d.Info.Addr,
		MaxEPs:                        d.MaxQP,
		MaxDTOPerEP:                   maxDTOs(d),
		MaxRDMAReadPerEPIn:            min(d.MaxReadIn, 255),
		MaxRDMAReadPerEPOut:           min(d.MaxReadOut, 255),
		MaxEVDs:                       d.MaxCQ,
		MaxEVDQLen:                    d.MaxCQE,
		MaxIOVSegmentsPerDTO:          d.MaxSGE,
		MaxLMRs:                       d.MaxMR,
		MaxLMRBlockSize:               d.MaxMRSize,
		MaxLMRVirtualAddress:          1<<64 - 1,
		MaxPZs:                        d.MaxPD,
		MaxMessageSize:                d.MaxMessage,
		MaxRDMASize:                   d.MaxMessage,
		MaxRMRs:                       d.MaxMW,
		MaxRMRTargetAddress:           1<<64 - 1,
		MaxSRQs:                       d.MaxSRQ,
		MaxEPPerSRQ:                   d.MaxQP,
		MaxRecvPerSRQ:                 maxSRQDepth(d),
		MaxIOVSegmentsPerRDMARead:     d.MaxReadSGE,
		MaxIOVSegmentsPerRDMAWrite:    d.MaxSGE,
		MaxRDMAReadIn:                 d.MaxReadTotal,
		MaxRDMAReadOut:                d.MaxReadTotal,
		MaxRDMAReadPerEPInGuaranteed:  enoughReads(d, d.MaxReadIn),
		MaxRDMAReadPerEPOutGuaranteed: enoughReads(d, d.MaxReadOut),
		TransportAttr: []NamedAttr{
			{"TRANSPORT", d.Transport},
			{"PATH_MTU", strconv.Itoa(d.MTU)},
			{"PORT_STATE", portState(d.Info.Active)},
		},
		VendorAttr: []NamedAttr{
			{"VENDOR_ID", "0x" + strconv.FormatUint(uint64(d.VendorID), 16)},
			{"VENDOR_PART_ID", "0x" + strconv.FormatUint(uint64(d.PartID), 16)},
			{"FIRMWARE_VERSION", d.FWVersion},
		},
	}
}

// enoughReads reports whether all queue pairs of the device can have their greatest number of
// reads, perEP, in flight at once.
func enoughReads(d *fabric.Attr, perEP int) bool {
	return uint64(min(perEP, 255))*uint64(d.MaxQP) <= uint64(d.MaxReadTotal)
}

func portState(active bool) string {
	if active {
		return "ACTIVE"
	}
	return "DOWN"
}

// splitVersion returns the first two numbers of a version like "1.2.3".
func splitVersion(text string) (major, minor int) {
	first, rest, _ := strings.Cut(text, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, _ = strconv.Atoi(first)
	minor, _ = strconv.Atoi(second)
	return major, minor
}

func providerAttr(d *fabric.Attr) ProviderAttr {
	p := ProviderAttr{
		ProviderName:             "godat",
		ProviderVersionMajor:     1,
		DAPLVersionMajor:         providerMajor,
		DAPLVersionMinor:         providerMinor,
		LMRMemTypesSupported:     []MemType{MemVirtual, MemLMR, MemSharedVirtual},
		IOVOwnershipOnReturn:     IOVConsumer,
		QoSSupported:             QoSBestEffort,
		CompletionFlagsSupported: sendFlags,
		ThreadSafe:               true,
		MaxPrivateDataSize:       d.MaxConnData,
		MaxRejectDataSize:        d.MaxRejectData,
		EPCreator:                EPCreatorIfAsked,
		PZSupport:                PZUnique,
		OptimalBufferAlignment:   64,
		SRQSupported:             d.MaxSRQ > 0,
		SRQEPPZDifference:        d.MaxSRQ > 0 && d.SRQOtherPD,
		EPRecvInfoSupported:      EPRecvInfoAllocated | EPRecvInfoSpan,
		RDMAWriteForRDMARead:     d.ReadSinkRemote,
		ProviderSpecificAttr: []NamedAttr{
			{AttrFetchAndAdd, truth(d.Atomics)},
			{AttrCmpAndSwap, truth(d.Atomics)},
			{AttrImmediateData, truth(d.WriteImmediate)},
			{AttrSendWithInvalidate, truth(canInvalidate(d))},
			{AttrRMRExactBounds, truth(d.MaxMW > 0 && d.ExactBounds)},
			{AttrRNRRetryFinite, truth(d.EnforcesRNR)},
		},
	}
	for i := range p.EVDStreamMerging {
		for j := range p.EVDStreamMerging[i] {
			p.EVDStreamMerging[i][j] = true
		}
	}
	if p.SRQSupported {
		p.SRQWatermarksSupported = SRQWatermarkLow
		p.SRQInfoSupported = SRQInfoOutstanding
		if d.SRQExactCounts {
			p.SRQInfoSupported |= SRQInfoAvailable
			p.SRQWatermarksSupported |= SRQWatermarkSoftHigh | SRQWatermarkHardHigh
		}
	}
	return p
}

func truth(b bool) string {
	if b {
		return "TRUE"
	}
	return "FALSE"
}

// Specific returns the value of the provider-specific attribute with this name, or "" if there is
// no such attribute.
//
// Extension.
func (p *ProviderAttr) Specific(name string) string {
	if p == nil {
		return ""
	}
	for _, a := range p.ProviderSpecificAttr {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}
