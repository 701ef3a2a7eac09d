//go:build dat2

package main

// #cgo LDFLAGS: -ldat2 -Wl,--wrap=crosscall2 -Wl,--wrap=x_cgo_getstackbound -Wl,--wrap=pthread_create
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/godat/godat/udat"
)

// adapter is an open IA.
type adapter struct {
	*udat.IA
	provider *C.DAT_PROVIDER
	safe     C.DAT_BOOLEAN // is_thread_safe of dat.conf
	strict   bool
	self     *entry
	maxIOV   int // the largest number of segments of a post

	mu      sync.Mutex
	entries map[*entry]struct{} // the handles that are not freed

	points   sync.Mutex // held while a service point is created, so that its first request finds its handle
	reserved []*entry   // reserved service points whose request has not been dequeued; guarded by points

	specific                       []udat.NamedAttr
	cTransport, cVendor, cSpecific *C.DAT_NAMED_ATTR // named attributes in memory of C
}

// lineKey identifies a line of dat.conf: a name may have two lines, one for threadsafe and one for
// nonthreadsafe.
type lineKey struct {
	name string
	safe bool
}

// instance has the settings of a line of dat.conf.
type instance struct {
	device string
	strict bool
}

var instances sync.Map // from lineKey to instance

// godat_name records the name of an adapter in dat.conf with its ia_params, "DEVICE [strict]".
// Without params, the device is what follows godat- in the name. It returns 1, or 0 if it does not
// understand the params.
//
//export godat_name
func godat_name(name *C.char, safe C.DAT_BOOLEAN, params *C.char) C.int {
	n := C.GoString(name)
	in := instance{device: strings.TrimPrefix(n, "godat-")}
	for i, word := range strings.Fields(strings.Trim(C.GoString(params), `"`)) {
		switch {
		case i == 0:
			in.device = word
		case word == "strict":
			in.strict = true
		default:
			return 0
		}
	}
	instances.Store(lineKey{n, safe != 0}, in)
	return 1
}

//export godat_ia_open
func godat_ia_open(name C.DAT_NAME_PTR, safe C.DAT_BOOLEAN, qlen C.DAT_COUNT, async *C.DAT_EVD_HANDLE,
	out *C.DAT_IA_HANDLE) C.DAT_RETURN {
	v, ok := instances.Load(lineKey{C.GoString(name), safe != 0})
	if !ok {
		return failure(udat.ProviderNotFound, udat.SubNameNotRegistered)
	}
	if async == nil || out == nil {
		return badArgument(3)
	}
	in := v.(instance)
	var opts []udat.Option
	exists := uintptr(unsafe.Pointer(*async)) == 1 // DAT_EVD_ASYNC_EXISTS
	switch {
	case exists:
		opts = append(opts, udat.WithoutAsyncEVD())
	case *async != nil:
		evd, e := find[*udat.EVD](*async)
		if e == nil {
			return badHandle(udat.SubHandleEVDAsync)
		}
		opts = append(opts, udat.WithAsyncEVD(evd))
	case qlen > 0:
		opts = append(opts, udat.WithAsyncQLen(int(qlen)))
	default:
		return badArgument(2)
	}
	if !in.strict {
		opts = append(opts, udat.WithForeignConnectEVDs())
	}
	opened, err := udat.Open(in.device, append(opts, udat.WithVirtualAddresses())...)
	if err != nil {
		return code(err)
	}
	ia := &adapter{IA: opened, provider: C.godat_provider(name, safe), safe: safe, strict: in.strict,
		entries: map[*entry]struct{}{}}
	makesEVD := !exists && *async == nil
	var evd *entry
	if makesEVD {
		evd = ia.newHandle(opened.AsyncEVD())
	}
	ia.self = ia.newHandle(opened)
	if ia.self == nil || makesEVD && evd == nil {
		opened.Close(udat.CloseAbrupt)
		ia.freeAll()
		return failure(udat.InsufficientResources, udat.SubResourceMemory)
	}
	putAddr(&ia.self.c.local, opened.Addr(), 0)
	if makesEVD {
		*async = C.DAT_EVD_HANDLE(evd.c)
	}
	_, attr, provider, _ := opened.Query()
	ia.maxIOV = attr.MaxIOVSegmentsPerDTO
	ia.cTransport = namedAttrs(attr.TransportAttr)
	ia.cVendor = namedAttrs(attr.VendorAttr)
	ia.specific = specificAttrs(&attr, &provider)
	ia.cSpecific = namedAttrs(ia.specific)
	*out = C.DAT_IA_HANDLE(ia.self.c)
	return C.DAT_SUCCESS
}

//export godat_ia_close
func godat_ia_close(h C.DAT_IA_HANDLE, flags C.DAT_CLOSE_FLAGS) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	if err := opened.Close(udat.CloseFlags(flags)); err != nil {
		return code(err)
	}
	e.ia.freeAll()
	freeAttrs(e.ia.cTransport, e.ia.cVendor, e.ia.cSpecific)
	return C.DAT_SUCCESS
}

// freeAll frees all handles of the adapter.
func (ia *adapter) freeAll() {
	ia.mu.Lock()
	entries := slices.Collect(maps.Keys(ia.entries))
	ia.mu.Unlock()
	for _, e := range entries {
		e.free()
	}
}

// specificAttrs returns the attributes that programs for the C library ask for, followed by the
// provider's own attributes.
func specificAttrs(a *udat.IAAttr, p *udat.ProviderAttr) []udat.NamedAttr {
	attrs := []udat.NamedAttr{
		{Name: "DAT_EXTENSION_INTERFACE", Value: strings.ToUpper(strconv.FormatBool(hasExtension(p)))},
		{Name: "DAT_IB_RDMA_READ", Value: "TRUE"},
		{Name: "DAT_IB_DEVICE_NAME", Value: a.AdapterName},
	}
	for _, t := range a.TransportAttr {
		if t.Name == "PATH_MTU" {
			attrs = append(attrs, udat.NamedAttr{Name: "DAT_IB_TRANSPORT_MTU", Value: t.Value})
		}
	}
	return append(attrs, p.ProviderSpecificAttr...)
}

// hasExtension reports whether the device has any operation of the InfiniBand extension. Verbs
// devices of iWARP have none. The test programs dtest and dtestx rely on this answer.
func hasExtension(p *udat.ProviderAttr) bool {
	return p.Specific(udat.AttrImmediateData) == "TRUE" || p.Specific(udat.AttrFetchAndAdd) == "TRUE"
}

// namedAttrs copies attributes into C memory. An empty attribute ends the list.
func namedAttrs(attrs []udat.NamedAttr) *C.DAT_NAMED_ATTR {
	p := (*C.DAT_NAMED_ATTR)(C.calloc(C.size_t(len(attrs)+1), C.sizeof_DAT_NAMED_ATTR))
	list := unsafe.Slice(p, len(attrs))
	for i, a := range attrs {
		list[i].name, list[i].value = C.CString(a.Name), C.CString(a.Value)
	}
	return p
}

func freeAttrs(lists ...*C.DAT_NAMED_ATTR) {
	for _, list := range lists {
		for a := list; a.name != nil; a = (*C.DAT_NAMED_ATTR)(unsafe.Add(unsafe.Pointer(a), C.sizeof_DAT_NAMED_ATTR)) {
			C.free(unsafe.Pointer(a.name))
			C.free(unsafe.Pointer(a.value))
		}
		C.free(unsafe.Pointer(list))
	}
}

//export godat_ia_query
func godat_ia_query(h C.DAT_IA_HANDLE, async *C.DAT_EVD_HANDLE, mask C.DAT_IA_ATTR_MASK, out *C.DAT_IA_ATTR,
	providerMask C.DAT_PROVIDER_ATTR_MASK, outProvider *C.DAT_PROVIDER_ATTR) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case mask&^C.DAT_IA_FIELD_ALL != 0:
		return badArgument(3)
	case mask != 0 && out == nil:
		return badArgument(4)
	case providerMask&^C.DAT_PROVIDER_FIELD_ALL != 0:
		return badArgument(5)
	case providerMask != 0 && outProvider == nil:
		return badArgument(6)
	}
	asyncEVD, attr, provider, err := opened.Query()
	if err != nil {
		return code(err)
	}
	if async != nil {
		if *async = C.DAT_EVD_HANDLE(handleOf(asyncEVD)); asyncEVD == nil {
			*(*uintptr)(unsafe.Pointer(async)) = 2 // DAT_EVD_OUT_OF_SCOPE
		}
	}
	if mask != 0 {
		e.ia.putAttr(out, &attr)
		if hasExtension(&provider) {
			out.extension_supported = C.DAT_EXTENSION_IB
		}
	}
	if providerMask != 0 {
		e.ia.putProviderAttr(outProvider, &provider)
	}
	return C.DAT_SUCCESS
}

func (ia *adapter) putAttr(out *C.DAT_IA_ATTR, a *udat.IAAttr) {
	*out = C.DAT_IA_ATTR{
		hardware_version_major:              C.DAT_UINT32(a.HardwareVersionMajor),
		hardware_version_minor:              C.DAT_UINT32(a.HardwareVersionMinor),
		firmware_version_major:              C.DAT_UINT32(a.FirmwareVersionMajor),
		firmware_version_minor:              C.DAT_UINT32(a.FirmwareVersionMinor),
		ia_address_ptr:                      (C.DAT_IA_ADDRESS_PTR)(unsafe.Pointer(&ia.self.c.local)),
		max_eps:                             count(a.MaxEPs),
		max_dto_per_ep:                      count(a.MaxDTOPerEP),
		max_rdma_read_per_ep_in:             count(a.MaxRDMAReadPerEPIn),
		max_rdma_read_per_ep_out:            count(a.MaxRDMAReadPerEPOut),
		max_evds:                            count(a.MaxEVDs),
		max_evd_qlen:                        count(a.MaxEVDQLen),
		max_iov_segments_per_dto:            count(a.MaxIOVSegmentsPerDTO),
		max_lmrs:                            count(a.MaxLMRs),
		max_lmr_block_size:                  length(a.MaxLMRBlockSize),
		max_lmr_virtual_address:             C.DAT_VADDR(a.MaxLMRVirtualAddress),
		max_pzs:                             count(a.MaxPZs),
		max_message_size:                    length(a.MaxMessageSize),
		max_rdma_size:                       length(a.MaxRDMASize),
		max_rmrs:                            count(a.MaxRMRs),
		max_rmr_target_address:              C.DAT_VADDR(a.MaxRMRTargetAddress),
		max_srqs:                            count(a.MaxSRQs),
		max_ep_per_srq:                      count(a.MaxEPPerSRQ),
		max_recv_per_srq:                    count(a.MaxRecvPerSRQ),
		max_iov_segments_per_rdma_read:      count(a.MaxIOVSegmentsPerRDMARead),
		max_iov_segments_per_rdma_write:     count(a.MaxIOVSegmentsPerRDMAWrite),
		max_rdma_read_in:                    count(a.MaxRDMAReadIn),
		max_rdma_read_out:                   count(a.MaxRDMAReadOut),
		max_rdma_read_per_ep_in_guaranteed:  boolean(a.MaxRDMAReadPerEPInGuaranteed),
		max_rdma_read_per_ep_out_guaranteed: boolean(a.MaxRDMAReadPerEPOutGuaranteed),
		extension_supported:                 C.DAT_EXTENSION_NONE,
		extension_version:                   C.DAT_IB_EXTENSION_VERSION,
		num_transport_attr:                  count(len(a.TransportAttr)),
		transport_attr:                      ia.cTransport,
		num_vendor_attr:                     count(len(a.VendorAttr)),
		vendor_attr:                         ia.cVendor,
	}
	putString(out.adapter_name[:], C.GoString(ia.provider.device_name)) // the name that was opened
	putString(out.vendor_name[:], a.VendorName)
}

func (ia *adapter) putProviderAttr(out *C.DAT_PROVIDER_ATTR, p *udat.ProviderAttr) {
	*out = C.DAT_PROVIDER_ATTR{
		provider_version_major:         2,
		dapl_version_major:             2,
		iov_ownership_on_return:        C.DAT_IOV_OWNERSHIP(p.IOVOwnershipOnReturn),
		dat_qos_supported:              C.DAT_QOS(p.QoSSupported),
		completion_flags_supported:     C.DAT_COMPLETION_FLAGS(p.CompletionFlagsSupported),
		is_thread_safe:                 ia.safe,
		max_private_data_size:          count(p.MaxPrivateDataSize),
		ep_creator:                     C.DAT_EP_CREATOR_FOR_PSP(p.EPCreator),
		optimal_buffer_alignment:       C.DAT_UINT32(p.OptimalBufferAlignment),
		srq_supported:                  boolean(p.SRQSupported),
		srq_watermarks_supported:       C.DAT_COUNT(p.SRQWatermarksSupported),
		srq_ep_pz_difference_supported: boolean(p.SRQEPPZDifference),
		srq_info_supported:             C.DAT_COUNT(p.SRQInfoSupported),
		ep_recv_info_supported:         C.DAT_COUNT(p.EPRecvInfoSupported),
		lmr_sync_req:                   boolean(p.LMRSyncReq),
		dto_async_return_guaranteed:    boolean(p.DTOAsyncReturnGuaranteed),
		rdma_write_for_rdma_read_req:   boolean(p.RDMAWriteForRDMARead),
		rmr_scope_supported:            C.DAT_RMR_SCOPE_PZ,
		num_provider_specific_attr:     count(len(ia.specific)),
		provider_specific_attr:         ia.cSpecific,
	}
	putString(out.provider_name[:], C.GoString(ia.provider.device_name))
	for _, t := range p.LMRMemTypesSupported {
		out.lmr_mem_types_supported |= C.DAT_MEM_TYPE(t)
	}
	if p.PZSupport == udat.PZShareable {
		out.pz_support = C.DAT_PZ_SHAREABLE
	}
	for i := range p.EVDStreamMerging {
		for j, may := range p.EVDStreamMerging[i] {
			out.evd_stream_merging_supported[i][j] = boolean(may)
		}
	}
}

func count(n int) C.DAT_COUNT { return C.DAT_COUNT(min(n, math.MaxInt32)) }

func length(n uint64) C.DAT_SEG_LENGTH { return C.DAT_SEG_LENGTH(min(n, math.MaxUint32)) }

func boolean(b bool) C.DAT_BOOLEAN {
	if b {
		return C.DAT_TRUE
	}
	return C.DAT_FALSE
}

func putString(to []C.char, s string) {
	for i := range min(len(s), len(to)-1) {
		to[i] = C.char(s[i])
	}
}

// putAddr writes an address as a sockaddr.
func putAddr(to *C.struct_sockaddr_in6, addr netip.Addr, port uint16) {
	*to = C.struct_sockaddr_in6{}
	bigPort := C.in_port_t(port<<8 | port>>8)
	if addr = addr.Unmap(); addr.Is4() {
		in := (*C.struct_sockaddr_in)(unsafe.Pointer(to))
		in.sin_family, in.sin_port = C.AF_INET, bigPort
		*(*[4]byte)(unsafe.Pointer(&in.sin_addr)) = addr.As4()
	} else if addr.IsValid() {
		to.sin6_family, to.sin6_port = C.AF_INET6, bigPort
		*(*[16]byte)(unsafe.Pointer(&to.sin6_addr)) = addr.As16()
	}
}

// getAddr returns the address in a sockaddr. It returns the zero Addr for nil and for other
// families.
func getAddr(p C.DAT_IA_ADDRESS_PTR) netip.Addr {
	switch {
	case p == nil:
	case p.sa_family == C.AF_INET:
		return netip.AddrFrom4(*(*[4]byte)(unsafe.Pointer(&(*C.struct_sockaddr_in)(unsafe.Pointer(p)).sin_addr)))
	case p.sa_family == C.AF_INET6:
		return netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&(*C.struct_sockaddr_in6)(unsafe.Pointer(p)).sin6_addr)))
	}
	return netip.Addr{}
}
