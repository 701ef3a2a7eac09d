package udat_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// onFabric opens mem0 on a new fabric. edit sets the limits and abilities of its device.
func onFabric(edit func(*fabric.Attr)) udat.Option {
	own := memfabric.New()
	edit(&own.Attr)
	return udat.Through(func(f fabric.Fabric) fabric.Fabric {
		if f.Name() == own.Name() {
			return own
		}
		return f
	})
}

// TestReadDepthLimits: a read depth has 8 bits, whatever the device can do.
func TestReadDepthLimits(t *testing.T) {
	withoutDevice(t)
	most := onFabric(func(a *fabric.Attr) { a.MaxReadIn, a.MaxReadOut = 300, 400 })
	e := newEnd(t, "mem0", setup{opts: []udat.Option{most}})
	for _, c := range []struct {
		in, out int
		good    bool
	}{{255, 1, true}, {1, 255, true}, {255, 255, true}, {256, 1, false}, {1, 256, false}} {
		attr := udat.EPAttr{MaxRDMAReadIn: c.in, MaxRDMAReadOut: c.out}
		_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &attr)
		assert.Equal(t, err == nil, c.good, "%d, %d: %v", c.in, c.out, err)
		assert.Assert(t, c.good || errorsIs(err, udat.ErrInvalidParameter), "%v", err)
	}
}

// distinct sets every number in a device's attributes to a value of its own; the read depths are
// below 256.
func distinct(a *fabric.Attr) {
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(1000 + 10*i))
		case reflect.Uint32, reflect.Uint64:
			f.SetUint(uint64(1000 + 10*i))
		}
	}
	a.MaxReadIn, a.MaxReadOut = 101, 102
	a.VendorName, a.FWVersion, a.Transport = "a vendor", "7.9.11", "a transport"
	a.Info.Addr = netip.MustParseAddr("192.0.2.7")
}

// wantIAAttr returns the attributes that an adapter on the device must have. Attributes that do not
// depend on the device are 2^64-1, which means no limit.
func wantIAAttr(name string, d fabric.Attr) udat.IAAttr {
	const unlimited = 1<<64 - 1
	reads := func(n int) int { return min(n, 255) }
	guaranteed := func(n int) bool { return uint64(reads(n))*uint64(d.MaxQP) <= uint64(d.MaxReadTotal) }
	state := map[bool]string{true: "ACTIVE", false: "DOWN"}[d.Info.Active]
	return udat.IAAttr{
		AdapterName: name, VendorName: d.VendorName, Addr: d.Info.Addr,
		HardwareVersionMajor: int(d.HWVersion), FirmwareVersionMajor: firmware(d.FWVersion, 0),
		FirmwareVersionMinor: firmware(d.FWVersion, 1),
		MaxEPs:               d.MaxQP, MaxEVDs: d.MaxCQ, MaxLMRs: d.MaxMR, MaxPZs: d.MaxPD, MaxRMRs: d.MaxMW,
		MaxSRQs:     d.MaxSRQ,
		MaxEPPerSRQ: d.MaxQP,
		MaxDTOPerEP: min(d.MaxQPWR, d.MaxCQE/2) - 1, MaxEVDQLen: d.MaxCQE, MaxRecvPerSRQ: min(d.MaxSRQWR, 1<<24-1),
		MaxIOVSegmentsPerDTO: d.MaxSGE, MaxIOVSegmentsPerRDMARead: d.MaxReadSGE, MaxIOVSegmentsPerRDMAWrite: d.MaxSGE,
		MaxLMRBlockSize: d.MaxMRSize, MaxLMRVirtualAddress: unlimited, MaxRMRTargetAddress: unlimited,
		MaxMessageSize: d.MaxMessage, MaxRDMASize: d.MaxMessage,
		MaxRDMAReadPerEPIn: reads(d.MaxReadIn), MaxRDMAReadPerEPOut: reads(d.MaxReadOut),
		MaxRDMAReadIn: d.MaxReadTotal, MaxRDMAReadOut: d.MaxReadTotal,
		MaxRDMAReadPerEPInGuaranteed: guaranteed(d.MaxReadIn), MaxRDMAReadPerEPOutGuaranteed: guaranteed(d.MaxReadOut),
		TransportAttr: []udat.NamedAttr{{Name: "TRANSPORT", Value: d.Transport}, {Name: "PATH_MTU", Value: decimal(d.MTU)},
			{Name: "PORT_STATE", Value: state}},
		VendorAttr: []udat.NamedAttr{{Name: "VENDOR_ID", Value: hex(d.VendorID)},
			{Name: "VENDOR_PART_ID", Value: hex(d.PartID)},
			{Name: "FIRMWARE_VERSION", Value: d.FWVersion}},
	}
}

// firmware returns one number of a version.
func firmware(version string, part int) int {
	parts := strings.Split(version, ".")
	if part >= len(parts) {
		return 0
	}
	n, err := strconv.Atoi(parts[part])
	if err != nil {
		return 0
	}
	return n
}

func decimal(n int) string { return fmt.Sprintf("%d", n) }
func hex(n uint32) string  { return fmt.Sprintf("%#x", n) }

func attributes(t *testing.T, ia *udat.IA) (udat.IAAttr, udat.ProviderAttr) {
	t.Helper()
	_, attr, prov, err := ia.Query()
	assert.NilError(t, err)
	return attr, prov
}

// TestIAAttr compares every attribute of an adapter with the attributes of its device.
func TestIAAttr(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		attr, _ := attributes(t, ia)
		assert.DeepEqual(t, attr, wantIAAttr(dev, udat.DeviceAttr(ia)), cmpAddrs)
		rule.Proves(t, "IA-QUERY-01")
	})
}

// TestIAAttrDistinct does the same on a device whose attributes are all different, and on devices
// with values around the library's own limits.
func TestIAAttrDistinct(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, edit := range []func(*fabric.Attr){
			distinct,
			func(a *fabric.Attr) { distinct(a); a.MaxReadIn, a.MaxReadOut, a.Info.Active = 300, 400, false },
			func(a *fabric.Attr) { distinct(a); a.MaxReadTotal = 101 * a.MaxQP },
			func(a *fabric.Attr) { distinct(a); a.MaxReadTotal = 102 * a.MaxQP },
			func(a *fabric.Attr) { distinct(a); a.MaxSRQ, a.MaxSRQWR = 1<<20, 1<<30 },
			func(a *fabric.Attr) { distinct(a); a.MaxMW, a.MaxSRQ, a.FWVersion = 0, 0, "none" },
		} {
			ia := open(t, dev, onFabric(edit))
			attr, _ := attributes(t, ia)
			assert.DeepEqual(t, attr, wantIAAttr(dev, udat.DeviceAttr(ia)), cmpAddrs)
		}
		attr, _ := attributes(t, open(t, dev, onFabric(distinct)))
		seen := map[string]string{}
		v := reflect.ValueOf(attr)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if k := v.Field(i).Kind(); k != reflect.Int && k != reflect.Uint64 || name == "HardwareVersionMinor" {
				continue
			}
			value := fmt.Sprint(v.Field(i))
			switch other := seen[value]; name + " " + other {
			case "MaxRDMASize MaxMessageSize", "MaxEPPerSRQ MaxEPs", "MaxIOVSegmentsPerRDMAWrite MaxIOVSegmentsPerDTO",
				"MaxRDMAReadOut MaxRDMAReadIn", "MaxRMRTargetAddress MaxLMRVirtualAddress": // one limit of the device
			default:
				assert.Equal(t, other, "", "%s is %s too", name, value)
				assert.Assert(t, value != "0", name)
			}
			seen[value] = name
		}
		rule.Proves(t, "IA-QUERY-01")
	})
}

// TestIAAttrLimits uses each limit of an adapter, and then exceeds it by one.
func TestIAAttrLimits(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		ia := open(t, dev, onFabric(func(a *fabric.Attr) {
			a.MaxPD, a.MaxMR, a.MaxMW, a.MaxSRQ, a.MaxCQ, a.MaxQP = 3, 5, 6, 4, 7, 9
			a.MaxCQE, a.MaxQPWR, a.MaxSRQWR, a.MaxSGE, a.MaxReadSGE, a.MaxReadIn, a.MaxReadOut = 1000, 41, 21, 8, 2, 11, 13
			a.MaxMRSize, a.MaxMessage = 10_000, 5_000
		}))
		attr, _ := attributes(t, ia)
		// full creates limit objects, and checks that one more is refused with subtype sub.
		full := func(what string, limit int, sub udat.Subtype, create func() error) {
			t.Helper()
			for i := range limit {
				assert.NilError(t, create(), "%s %d of %d", what, i+1, limit)
			}
			refused(t, create(), udat.InsufficientResources, sub)
		}
		var pz *udat.PZ
		full("zone", attr.MaxPZs, udat.SubResourceProtectionDomain, func() (err error) {
			z, err := ia.CreatePZ()
			if pz == nil {
				pz = z
			}
			return err
		})
		var mem *udat.LMR
		full("region", attr.MaxLMRs, udat.SubResourceMemoryRegion, func() error {
			l, err := ia.AllocLMR(pz, 6000, udat.PrivAll)
			if mem == nil {
				mem = l
			}
			return err
		})
		full("window", attr.MaxRMRs, udat.SubResourceMemoryRegion, func() error { _, err := pz.CreateRMR(); return err })
		// bounds tries a size at its limit and one above the limit.
		bounds := func(what string, limit int, want *udat.Error, create func(n int) (interface{ Free() error }, error)) {
			t.Helper()
			_, err := create(limit + 1)
			assert.ErrorIs(t, err, want, "%s", what)
			h, err := create(limit)
			assert.NilError(t, err, "%s", what)
			assert.NilError(t, h.Free())
		}
		bounds("queue length", attr.MaxEVDQLen, udat.ErrInsufficientResources,
			func(n int) (interface{ Free() error }, error) {
				return ia.CreateEVD(n, udat.EVDDTO, nil)
			})
		bounds("receives of a shared queue", attr.MaxRecvPerSRQ, udat.ErrInvalidParameter,
			func(n int) (interface{ Free() error }, error) {
				return ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: n, MaxRecvIOV: 1})
			})
		assert.NilError(t, mem.Free())
		bounds("block size", int(attr.MaxLMRBlockSize), udat.ErrInvalidParameter,
			func(n int) (interface{ Free() error }, error) {
				return ia.AllocLMR(pz, n, udat.PrivAll)
			})
		mem, err := ia.AllocLMR(pz, 6000, udat.PrivAll)
		assert.NilError(t, err)
		var evd *udat.EVD
		full("dispatcher", attr.MaxEVDs, udat.SubResourceTEVD, func() error {
			e, err := ia.CreateEVD(900, udat.EVDDTO, nil)
			if evd == nil {
				evd = e
			}
			return err
		})
		for _, c := range []struct {
			what  string
			limit int
			set   func(a *udat.EPAttr, n int)
		}{
			{"requests", attr.MaxDTOPerEP, func(a *udat.EPAttr, n int) { a.MaxRequestDTOs = n }},
			{"receives", attr.MaxDTOPerEP, func(a *udat.EPAttr, n int) { a.MaxRecvDTOs = n }},
			{"segments of a request", attr.MaxIOVSegmentsPerDTO, func(a *udat.EPAttr, n int) { a.MaxRequestIOV = n }},
			{"segments of a receive", attr.MaxIOVSegmentsPerDTO, func(a *udat.EPAttr, n int) { a.MaxRecvIOV = n }},
			{"segments of a read", attr.MaxIOVSegmentsPerRDMARead, func(a *udat.EPAttr, n int) { a.MaxRDMAReadIOV = n }},
			{"segments of a write", attr.MaxIOVSegmentsPerRDMAWrite, func(a *udat.EPAttr, n int) { a.MaxRDMAWriteIOV = n }},
			{"reads in", attr.MaxRDMAReadPerEPIn, func(a *udat.EPAttr, n int) { a.MaxRDMAReadIn = n }},
			{"reads out", attr.MaxRDMAReadPerEPOut, func(a *udat.EPAttr, n int) { a.MaxRDMAReadOut = n }},
			{"message size", int(attr.MaxMessageSize), func(a *udat.EPAttr, n int) { a.MaxMessageSize = uint64(n) }},
			{"RDMA size", int(attr.MaxRDMASize), func(a *udat.EPAttr, n int) { a.MaxRDMASize = uint64(n) }},
		} {
			bounds(c.what, c.limit, udat.ErrInvalidParameter, func(n int) (interface{ Free() error }, error) {
				var a udat.EPAttr
				c.set(&a, n)
				return ia.CreateEP(pz, evd, evd, nil, &a)
			})
		}
		most, err := ia.CreateEP(pz, evd, evd, nil, &udat.EPAttr{MaxRecvDTOs: attr.MaxDTOPerEP})
		assert.NilError(t, err)
		for range attr.MaxDTOPerEP {
			assert.NilError(t, most.PostRecv(nil, 0, 0))
		}
		refused(t, most.PostRecv(nil, 0, 0), udat.InsufficientResources, udat.SubResourceCredits)
		assert.NilError(t, most.Free())
		var srq *udat.SRQ
		full("shared queue", attr.MaxSRQs, udat.SubResourceSRQ, func() error {
			s, err := ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
			if srq == nil {
				srq = s
			}
			return err
		})
		small := &udat.EPAttr{MaxRecvDTOs: 1, MaxRequestDTOs: 1}
		var eps []*udat.EP
		full("endpoint", attr.MaxEPs, udat.SubResourceTEP, func() error {
			ep, err := ia.CreateEP(pz, evd, evd, nil, small)
			eps = append(eps, ep)
			return err
		})
		for _, ep := range eps[:attr.MaxEPs] {
			assert.NilError(t, ep.Free())
		}
		full("endpoint of a shared queue", attr.MaxEPPerSRQ, udat.SubResourceTEP, func() error {
			_, err := ia.CreateEPWithSRQ(pz, evd, evd, nil, srq, &udat.EPAttr{MaxRequestDTOs: 1})
			return err
		})
		rule.Proves(t, "IA-QUERY-01")
	})
}

// TestMaxDTOPerEP: MaxDTOPerEP is the greatest number of requests and of receives of an endpoint,
// also if both use one dispatcher.
func TestMaxDTOPerEP(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, edit := range []func(*fabric.Attr){
			func(*fabric.Attr) {},
			func(a *fabric.Attr) { a.MaxCQE = min(a.MaxCQE, 1001) },
			func(a *fabric.Attr) { a.MaxQPWR = 500 },
		} {
			ia := lacking(t, dev, edit)
			attr, _ := attributes(t, ia)
			pz, err := ia.CreatePZ()
			assert.NilError(t, err)
			evd, err := ia.CreateEVD(attr.MaxEVDQLen, udat.EVDDTO, nil)
			assert.NilError(t, err)
			most := udat.EPAttr{MaxRequestDTOs: attr.MaxDTOPerEP, MaxRecvDTOs: attr.MaxDTOPerEP, MaxRequestIOV: 1, MaxRecvIOV: 1}
			ep, err := ia.CreateEP(pz, evd, evd, nil, &most)
			assert.NilError(t, err)
			assert.Equal(t, param(t, ep).Attr.MaxRequestDTOs, attr.MaxDTOPerEP)
			for range attr.MaxDTOPerEP {
				assert.NilError(t, ep.PostRecv(nil, 0, 0))
			}
			refused(t, ep.PostRecv(nil, 0, 0), udat.InsufficientResources, udat.SubResourceCredits)
			assert.NilError(t, ep.Free())
			for _, more := range []udat.EPAttr{{MaxRequestDTOs: attr.MaxDTOPerEP + 1}, {MaxRecvDTOs: attr.MaxDTOPerEP + 1}} {
				_, err = ia.CreateEP(pz, evd, evd, nil, &more)
				assert.ErrorIs(t, err, udat.ErrInvalidParameter)
			}
		}
		rule.Proves(t, "IA-QUERY-01", "EP-CREATE-08")
	})
}

// wantProviderAttr returns the attributes that the library must have on a device.
func wantProviderAttr(d fabric.Attr) udat.ProviderAttr {
	truth := map[bool]string{true: "TRUE", false: "FALSE"}
	p := udat.ProviderAttr{
		ProviderName: "godat", ProviderVersionMajor: 1, DAPLVersionMajor: 1, DAPLVersionMinor: 2, ThreadSafe: true,
		LMRMemTypesSupported: []udat.MemType{udat.MemVirtual, udat.MemLMR, udat.MemSharedVirtual},
		IOVOwnershipOnReturn: udat.IOVConsumer, QoSSupported: udat.QoSBestEffort, CompletionFlagsSupported: 0x0F,
		MaxPrivateDataSize: d.MaxConnData, MaxRejectDataSize: d.MaxRejectData,
		EPCreator: udat.EPCreatorIfAsked, PZSupport: udat.PZUnique, OptimalBufferAlignment: 64,
		SRQSupported: d.MaxSRQ > 0, SRQEPPZDifference: d.MaxSRQ > 0 && d.SRQOtherPD, EPRecvInfoSupported: 0x11,
		RDMAWriteForRDMARead: d.ReadSinkRemote,
		ProviderSpecificAttr: []udat.NamedAttr{
			{Name: "DAT_IB_FETCH_AND_ADD", Value: truth[d.Atomics]}, {Name: "DAT_IB_CMP_AND_SWAP", Value: truth[d.Atomics]},
			{Name: "DAT_IB_IMMED_DATA", Value: truth[d.WriteImmediate]},
			{Name: "SEND_WITH_INVALIDATE", Value: truth[d.SendInvalidate && d.MWType2]},
			{Name: "RMR_EXACT_BOUNDS", Value: truth[d.MaxMW > 0 && d.ExactBounds]},
			{Name: "RNR_RETRY_FINITE", Value: truth[d.EnforcesRNR]},
		},
	}
	switch {
	case d.MaxSRQ > 0 && d.SRQExactCounts:
		p.SRQWatermarksSupported, p.SRQInfoSupported = 0x111, 0x11
	case d.MaxSRQ > 0:
		p.SRQWatermarksSupported, p.SRQInfoSupported = 0x001, 0x10
	}
	for i := range p.EVDStreamMerging {
		p.EVDStreamMerging[i] = [6]bool{true, true, true, true, true, true}
	}
	return p
}

// TestProviderAttr compares every attribute of the library with the attributes of the device.
func TestProviderAttr(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		_, prov := attributes(t, ia)
		assert.DeepEqual(t, prov, wantProviderAttr(udat.DeviceAttr(ia)))
		rule.Proves(t, "IA-QUERY-01")
	})
}

// TestProviderAttrEach does the same on devices that lack one ability, and on devices that have
// only that ability.
func TestProviderAttrEach(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		check := func(edit func(*fabric.Attr)) {
			t.Helper()
			ia := open(t, dev, onFabric(edit))
			_, prov := attributes(t, ia)
			assert.DeepEqual(t, prov, wantProviderAttr(udat.DeviceAttr(ia)))
		}
		check(distinct)
		check(func(a *fabric.Attr) { a.MaxSRQ = 0 })
		check(func(a *fabric.Attr) { a.MaxMW = 0 })
		abilities := reflect.TypeFor[fabric.Attr]()
		for i := range abilities.NumField() {
			if abilities.Field(i).Type.Kind() != reflect.Bool {
				continue
			}
			for _, others := range []bool{true, false} {
				check(func(a *fabric.Attr) {
					v := reflect.ValueOf(a).Elem()
					for j := range v.NumField() {
						if f := v.Field(j); f.Kind() == reflect.Bool {
							f.SetBool(others != (i == j))
						}
					}
				})
			}
		}
		rule.Proves(t, "IA-QUERY-01")
	})
}

// TestProviderAttrHolds checks that the attributes of the library are true.
func TestProviderAttrHolds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		_, p := attributes(t, b.ia)
		// Each call that reports a supported count reports a number.
		allocated, span, err := b.ep.RecvQuery()
		assert.NilError(t, err)
		assert.Equal(t, p.EPRecvInfoSupported&udat.EPRecvInfoAllocated != 0, allocated != udat.ValueUnknown)
		assert.Equal(t, p.EPRecvInfoSupported&udat.EPRecvInfoSpan != 0, span != udat.ValueUnknown)
		rule.Proves(t, "EP-RECVQ-08")
		shared, err := b.ia.CreateSRQ(b.pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		if p.SRQSupported {
			assert.NilError(t, err)
			c := count(t, shared)
			assert.Equal(t, p.SRQInfoSupported&udat.SRQInfoAvailable != 0, c.AvailableDTOCount != udat.ValueUnknown)
			assert.Equal(t, p.SRQInfoSupported&udat.SRQInfoOutstanding != 0, c.OutstandingDTOCount != udat.ValueUnknown)
			rule.Proves(t, "SRQ-QUERY-03")
			other, err := b.ia.CreatePZ()
			assert.NilError(t, err)
			same, err := b.ia.CreateEPWithSRQ(b.pz, b.recv, b.request, b.conn, shared, &udat.EPAttr{})
			assert.NilError(t, err)
			_, err = b.ia.CreateEPWithSRQ(other, b.recv, b.request, b.conn, shared, &udat.EPAttr{})
			assert.Equal(t, p.SRQEPPZDifference, err == nil, "%v", err)
			high := same.SetWatermark(1, udat.WatermarkInfinite)
			assert.Equal(t, p.SRQWatermarksSupported&udat.SRQWatermarkSoftHigh != 0, high == nil, "%v", high)
			high = same.SetWatermark(udat.WatermarkInfinite, 1)
			assert.Equal(t, p.SRQWatermarksSupported&udat.SRQWatermarkHardHigh != 0, high == nil, "%v", high)
			low := shared.SetLW(1)
			assert.Equal(t, p.SRQWatermarksSupported&udat.SRQWatermarkLow != 0, low == nil, "%v", low)
		} else {
			assert.ErrorIs(t, err, udat.ErrModelNotSupported)
			assert.Assert(t, p.SRQInfoSupported == 0 && p.SRQWatermarksSupported == 0 && !p.SRQEPPZDifference)
		}
		// Each flag is accepted, and no other.
		connect(t, a, b)
		for flag := udat.CompletionFlags(1); flag != 0; flag <<= 1 {
			ep := a.ep
			if flag == udat.CompletionUnsignalled {
				continue // of endpoints that are made for it
			}
			err := ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), flag&^udat.CompletionSolicitedWait)
			if flag == udat.CompletionSolicitedWait {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
				err = ep.PostSend(a.iov(0, 8), 1, flag)
			}
			assert.Equal(t, p.CompletionFlagsSupported&flag != 0, err == nil, "flag 0x%x: %v", uint32(flag), err)
			if err == nil && flag != udat.CompletionSuppress {
				completion(t, a.request, 1)
			}
		}
		for qos := udat.QoS(1); qos <= udat.QoSPremium; qos <<= 1 {
			_, err := a.ia.CreateEP(a.pz, nil, nil, nil, &udat.EPAttr{QoS: qos})
			assert.Equal(t, p.QoSSupported&qos != 0, err == nil, "quality 0x%x: %v", uint32(qos), err)
		}
		assert.Equal(t, udat.OptimalAlignment%p.OptimalBufferAlignment, 0)
		rule.Proves(t, "IA-QUERY-01", "F-10")
	})
}

// TestQueueLength: a dispatcher queues as many events as the length that it reports.
func TestQueueLength(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		holds := func(evd *udat.EVD, least int) {
			t.Helper()
			n := queueLength(t, evd)
			assert.Assert(t, n >= least)
			for range n {
				soft(t, evd, 0)
			}
			assert.ErrorIs(t, evd.PostSE(udat.Event{Number: udat.EventSoftware}), udat.ErrQueueFull)
			for range n {
				expect(t, evd, udat.EventSoftware)
			}
			empty(t, evd)
		}
		for _, streams := range []udat.EVDFlags{udat.EVDSoftware, udat.EVDSoftware | udat.EVDDefault} {
			for _, n := range []int{1, 7, 8, 9, 100} {
				evd, err := ia.CreateEVD(n, streams, nil)
				assert.NilError(t, err)
				holds(evd, n)
				for _, n := range []int{150, 3, 1} {
					assert.NilError(t, evd.Resize(n))
					holds(evd, n)
				}
			}
		}
		rule.Proves(t, "EVD-QUERY-01", "EVD-04", "EVD-RESIZE-01", "EVD-POSTSE-04")
	})
}

// TestEPAttrEach: each attribute of an endpoint has the value that was requested, and a change of
// one attribute changes no other.
func TestEPAttrEach(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		dev0 := udat.DeviceAttr(e.ia)
		recv, request := e.evd(64, udat.EVDDTO), e.evd(64, udat.EVDDTO|udat.EVDRMRBind)
		want := udat.EPAttr{
			MaxMessageSize: 1001, MaxRDMASize: 1002, RecvCompletionFlags: udat.CompletionSolicitedWait,
			RequestCompletionFlags: udat.CompletionUnsignalled,
			MaxRecvDTOs:            31, MaxRequestDTOs: 32, MaxRecvIOV: 5, MaxRequestIOV: 6, MaxRDMAReadIn: 2, MaxRDMAReadOut: 3,
			MaxRDMAReadIOV: min(7, dev0.MaxReadSGE), MaxRDMAWriteIOV: 4, SRQSoftHW: udat.HWDefault,
		}
		ep, err := e.ia.CreateEP(e.pz, recv, request, e.conn, &want)
		assert.NilError(t, err)
		assert.DeepEqual(t, param(t, ep).Attr, want)
		for _, c := range []struct {
			field udat.EPField
			set   func(a *udat.EPAttr)
		}{
			{udat.EPFieldMaxMessageSize, func(a *udat.EPAttr) { a.MaxMessageSize = 901 }},
			{udat.EPFieldMaxRDMASize, func(a *udat.EPAttr) { a.MaxRDMASize = 902 }},
			{udat.EPFieldRecvCompletionFlags, func(a *udat.EPAttr) { a.RecvCompletionFlags = udat.CompletionEVDThreshold }},
			{udat.EPFieldRequestCompletionFlags, func(a *udat.EPAttr) { a.RequestCompletionFlags = 0 }},
			{udat.EPFieldMaxRecvDTOs, func(a *udat.EPAttr) { a.MaxRecvDTOs = 21 }},
			{udat.EPFieldMaxRequestDTOs, func(a *udat.EPAttr) { a.MaxRequestDTOs = 22 }},
			{udat.EPFieldMaxRecvIOV, func(a *udat.EPAttr) { a.MaxRecvIOV = 3 }},
			{udat.EPFieldMaxRequestIOV, func(a *udat.EPAttr) { a.MaxRequestIOV = 4 }},
			{udat.EPFieldMaxRDMAReadIn, func(a *udat.EPAttr) { a.MaxRDMAReadIn = 1 }},
			{udat.EPFieldMaxRDMAReadOut, func(a *udat.EPAttr) { a.MaxRDMAReadOut = 4 }},
			{udat.EPFieldMaxRDMAReadIOV, func(a *udat.EPAttr) { a.MaxRDMAReadIOV = min(5, dev0.MaxReadSGE) }},
			{udat.EPFieldMaxRDMAWriteIOV, func(a *udat.EPAttr) { a.MaxRDMAWriteIOV = 2 }},
		} {
			p := udat.EPParam{Attr: udat.EPAttr{ // what is not asked for does not count
				MaxMessageSize: 1, MaxRDMASize: 1, MaxRecvDTOs: 1, MaxRequestDTOs: 1, MaxRecvIOV: 1, MaxRequestIOV: 1,
				MaxRDMAReadIn: 1, MaxRDMAReadOut: 1, MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 1,
			}}
			c.set(&p.Attr)
			c.set(&want)
			assert.NilError(t, ep.Modify(c.field, p))
			assert.DeepEqual(t, param(t, ep).Attr, want)
		}
		q := param(t, ep)
		assert.Assert(t, q.IA == e.ia && q.PZ == e.pz && q.RecvEVD == recv && q.RequestEVD == request &&
			q.ConnectEVD == e.conn && q.SRQ == nil)
		rule.Proves(t, "EP-QUERY-01", "GEN-07")

		largest := dev0.MaxMessage
		segments, reads := min(4, dev0.MaxSGE), func(n int) int { return min(4, n) }
		assert.DeepEqual(t, param(t, e.ep).Attr, udat.EPAttr{
			MaxMessageSize: largest, MaxRDMASize: largest, MaxRecvDTOs: 16, MaxRequestDTOs: 16, MaxRecvIOV: segments,
			MaxRequestIOV: segments,
			MaxRDMAReadIn: reads(dev0.MaxReadIn), MaxRDMAReadOut: reads(dev0.MaxReadOut), SRQSoftHW: udat.HWDefault,
			MaxRDMAReadIOV: min(4, dev0.MaxReadSGE), MaxRDMAWriteIOV: segments,
		})
		rule.Proves(t, "EP-CREATE-04")
	})
}

// TestSRQAttrEach: a shared queue takes as many receives and segments as it reports.
func TestSRQAttrEach(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 9, MaxRecvIOV: 3})
		fill := func(want int) {
			t.Helper()
			c := count(t, s)
			assert.Equal(t, c.MaxRecvDTOs, want)
			iov := make([]udat.LMRTriplet, c.MaxRecvIOV+1)
			refused(t, s.PostRecv(iov, 0), udat.InvalidParameter, udat.SubArg2)
			for i := c.OutstandingDTOCount; i < c.MaxRecvDTOs; i++ {
				assert.NilError(t, s.PostRecv(iov[1:], 0))
				assert.Equal(t, count(t, s).OutstandingDTOCount, i+1)
			}
			refused(t, s.PostRecv(iov[1:], 0), udat.InsufficientResources, udat.SubResourceSRQ)
		}
		assert.Equal(t, count(t, s).MaxRecvIOV, 3)
		fill(9)
		if udat.DeviceAttr(e.ia).SRQResize {
			assert.NilError(t, s.Resize(14))
			fill(14)
		}
		assert.NilError(t, s.SetLW(5))
		c := count(t, s)
		assert.Assert(t, c.LowWatermark == 5 && c.IA == e.ia && c.PZ == e.pz && c.State == udat.SRQOperational, "%+v", c)
		other, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		empty, err := e.ia.CreateSRQ(other, udat.SRQAttr{MaxRecvDTOs: 2, MaxRecvIOV: 1})
		assert.NilError(t, err)
		c = count(t, empty)
		assert.Assert(t, c.LowWatermark == 0 && c.PZ == other && c.MaxRecvDTOs == 2 && c.MaxRecvIOV == 1 &&
			c.OutstandingDTOCount == 0, "%+v", c)
		rule.Proves(t, "SRQ-QUERY-01", "SRQ-CREATE-01", "SRQ-RESIZE-01")
	})
}

// TestLMRParam queries regions of each type and with each privilege, and checks all results.
func TestLMRParam(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		other, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		memory := make([]byte, 10_000)
		at := func(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
		contexts := map[uint32]bool{}
		for i, priv := range []udat.MemPriv{udat.PrivNone, udat.PrivLocalRead, udat.PrivLocalWrite, udat.PrivRemoteRead,
			udat.PrivRemoteWrite | udat.PrivLocalWrite, udat.PrivAll} {
			part := memory[1000+i : 4000+10*i]
			region, err := e.ia.CreateLMR(other, part, priv)
			assert.NilError(t, err)
			again, err := e.ia.CreateLMRFromLMR(e.pz, region, priv)
			assert.NilError(t, err)
			for _, l := range []*udat.LMR{region, again} {
				p, err := l.Query()
				assert.NilError(t, err)
				assert.Assert(t, p.IA == e.ia && p.Privileges == priv && p.Length == uint64(len(part)), "%+v", p)
				assert.Assert(t, p.RegisteredAddress == at(part) && p.RegisteredSize == uint64(len(part)), "%+v", p)
				assert.Equal(t, p.RMRContext != 0, priv&(udat.PrivRemoteRead|udat.PrivRemoteWrite) != 0, "%+v", p)
				assert.Assert(t, !contexts[p.LMRContext], "another region has the context %#x", p.LMRContext)
				contexts[p.LMRContext] = true
				if l == region {
					assert.Assert(t, p.MemType == udat.MemVirtual && p.PZ == other && at(p.Region.Memory) == at(part) &&
						len(p.Region.Memory) == len(part) && p.Region.LMR == nil)
				} else {
					assert.Assert(t, p.MemType == udat.MemLMR && p.PZ == e.pz && p.Region.LMR == region && p.Region.Memory == nil)
				}
				assert.Equal(t, p.Region.SharedMemoryID, udat.SharedMemoryID{})
			}
		}
		rule.Proves(t, "LMR-QUERY-01", "LMR-CREATE-04", "LMR-CREATE-07")
	})
}

// TestSmallLimits: the defaults fit a device whose limits are below them.
func TestSmallLimits(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := lacking(t, dev, func(a *fabric.Attr) {
			a.MaxCQE, a.MaxQPWR, a.MaxSGE, a.MaxReadIn, a.MaxReadOut = 20, 9, 1, 1, 0
		})
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		evd, err := ia.CreateEVD(1, udat.EVDDTO|udat.EVDConnection, nil)
		assert.NilError(t, err)
		ep, err := ia.CreateEP(pz, evd, evd, evd, nil)
		assert.NilError(t, err)
		p, err := ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, p.Attr.MaxRequestDTOs, 8)
		assert.Equal(t, p.Attr.MaxRecvDTOs, 8)
		assert.Equal(t, p.Attr.MaxRDMAReadIn, 1)
		assert.NilError(t, errors.Join(ep.Free(), evd.Free(), pz.Free()))
	})
}
