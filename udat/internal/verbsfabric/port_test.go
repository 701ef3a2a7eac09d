package verbsfabric

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrList(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, addr(text))
	}
	return list
}

func gidEntry(text string, index int, netDev string) cverbs.GIDEntry {
	return cverbs.GIDEntry{GID: cverbs.GID(addr(text).As16()), Index: index, Port: 1, Type: cverbs.GIDTypeRoCEv2,
		NetDev: netDev}
}

// twoInterfaces returns a RoCE port with a VLAN. Its GID table has gaps.
func twoInterfaces() port {
	p := port{device: "x0", num: 1, attr: cverbs.PortAttr{LinkLayer: cverbs.LinkLayerEthernet, ActiveMTU: 3}}
	p.table = []cverbs.GIDEntry{
		gidEntry("fe80::1", 0, "eth0"), gidEntry("10.0.0.1", 1, "eth0"), gidEntry("10.0.7.1", 4, "eth0.7"),
		gidEntry("fd00:7::1", 5, "eth0.7"), gidEntry("fe80::7", 6, "eth0.7"), gidEntry("fd00::1", 9, "eth0"),
	}
	p.gid = p.table[1]
	p.addrs = p.findAddrs()
	p.info = fabric.DeviceInfo{Name: "x0", Addr: p.addrs[0], Addrs: p.addrs}
	return p
}

// TestGIDIndex: a GID index is an index of the port's table, not a position in the list of valid
// entries.
func TestGIDIndex(t *testing.T) {
	for _, e := range twoInterfaces().table {
		p := twoInterfaces()
		index := uint8(e.Index)
		assert.NilError(t, p.restrict(fabric.PathOptions{GIDIndex: &index}))
		assert.Equal(t, p.gid, e)
		assert.Equal(t, p.info.Addr, e.Addr())
		assert.DeepEqual(t, fmt.Sprint(p.addrs, p.info.Addrs), fmt.Sprint([]netip.Addr{e.Addr()}, []netip.Addr{e.Addr()}))
	}
	p := twoInterfaces()
	for _, index := range []uint8{2, 3, 7, 10, 255} {
		err := p.restrict(fabric.PathOptions{GIDIndex: &index})
		assert.ErrorContains(t, err, fmt.Sprintf("GID index is %d, where x0 has no GID; it has: 0, 1, 4, 5, 6, 9", index))
	}
	// InfiniBand's GIDs are no IP addresses: the port keeps its addresses.
	p.attr.LinkLayer = cverbs.LinkLayerInfiniBand
	index := uint8(9)
	before := slices.Clone(p.addrs)
	assert.NilError(t, p.restrict(fabric.PathOptions{GIDIndex: &index}))
	assert.Equal(t, p.gid.Index, 9)
	assert.Assert(t, slices.Equal(p.addrs, before))
}

// TestRestrict: each option has its own limit.
func TestRestrict(t *testing.T) {
	number := func(n uint8) *uint8 { return &n }
	for _, c := range []struct {
		o    fabric.PathOptions
		want string // of RoCE
		warp bool   // iWARP takes it
	}{
		{fabric.PathOptions{}, "", true},
		{fabric.PathOptions{TOS: number(255)}, "", true},
		{fabric.PathOptions{SL: number(15)}, "", false},
		{fabric.PathOptions{SL: number(16)}, "service level is 16, must be from 0 to 15", false},
		{fabric.PathOptions{AckTimeout: number(31)}, "", false},
		{fabric.PathOptions{AckTimeout: number(32)}, "acknowledgement timeout is 32, must be from 0 to 31", false},
		{fabric.PathOptions{MTU: 1024}, "", false},
		{fabric.PathOptions{MTU: 2048}, "path MTU is 2048, x0 has 1024", false},
		{fabric.PathOptions{GIDIndex: number(4)}, "", false},
		{fabric.PathOptions{TOS: number(1), SL: number(1)}, "", false},
	} {
		p := twoInterfaces()
		if err := p.restrict(c.o); c.want == "" {
			assert.NilError(t, err)
		} else {
			assert.ErrorContains(t, err, c.want)
		}
		p.iwarp = true
		if err := p.restrict(c.o); c.warp {
			assert.NilError(t, err)
		} else {
			assert.ErrorIs(t, err, fabric.ErrNotSupported)
		}
	}
}

// TestAttr: each attribute of the fabric is copied from the right attribute of the device.
func TestAttr(t *testing.T) {
	var dev cverbs.DeviceAttr
	v := reflect.ValueOf(&dev).Elem()
	for i := range v.NumField() { // each its own number
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprint("text ", i))
		case reflect.Int:
			f.SetInt(int64(1000 + i))
		default:
			f.SetUint(uint64(1000+i) % (1<<f.Type().Bits() - 1))
		}
	}
	dev.MaxMRSize = 1<<40 + 7 // more than 32 bits have
	dev.Caps, dev.AtomicCap = 0, cverbs.AtomicNone
	p := twoInterfaces()
	p.dev, p.attr.MaxMsgSize, p.attr.ActiveMTU = dev, 1<<31+5, 4
	want := fabric.Attr{
		Info: p.info, VendorID: dev.VendorID, PartID: dev.VendorPartID, HWVersion: dev.HWVersion,
		FWVersion: dev.FirmwareVersion, Transport: "RoCE v2", Reach: reach("RoCE v2"), MaxQP: dev.MaxQP,
		MaxQPWR: dev.MaxQPWR, MaxSGE: dev.MaxSGE, MaxReadSGE: dev.MaxSGERD, MaxCQ: dev.MaxCQ, MaxCQE: dev.MaxCQE,
		MaxMR: dev.MaxMR, MaxMRSize: dev.MaxMRSize, MaxPD: dev.MaxPD, MaxSRQ: dev.MaxSRQ, MaxSRQWR: dev.MaxSRQWR - 1,
		MaxSRQSGE: dev.MaxSRQSGE, MaxReadIn: dev.MaxQPRDAtom, MaxReadOut: dev.MaxQPInitRDAtom,
		MaxReadTotal: dev.MaxResRDAtom, MaxMessage: 1<<31 + 5, MaxInline: cverbs.DefaultMaxInline, MaxConnData: 56,
		MaxAcceptData: 196, MaxRejectData: 144, MTU: 2048, PageSize: 4096,
		SRQOtherPD: true, WriteImmediate: true, PeerToPeer: true, ExactBounds: true, EnforcesRNR: true,
		Acknowledged: true, SolicitedArm: true, FailuresNotify: true,
	}
	same := func(change string) {
		t.Helper()
		got := p.fabricAttr(6, 4096)
		assert.Assert(t, reflect.DeepEqual(got, want), "%s:\n%+v\n%+v", change, got, want)
	}
	same("a device without abilities")
	for name, c := range map[string]struct {
		bit cverbs.DeviceCaps
		set func(*fabric.Attr)
	}{
		"resize":     {cverbs.DeviceSRQResize, func(a *fabric.Attr) { a.SRQResize = true }},
		"windows":    {cverbs.DeviceMemWindow, func(a *fabric.Attr) { a.MaxMW = dev.MaxMW }},
		"invalidate": {cverbs.DeviceMemMgtExt, func(a *fabric.Attr) { a.SendInvalidate = true }},
	} {
		without := want
		p.dev.Caps = c.bit
		c.set(&want)
		same(name)
		p.dev.Caps, want = 0, without
	}
	for _, scope := range []cverbs.AtomicCap{cverbs.AtomicHCA, cverbs.AtomicGlob} {
		p.dev.AtomicCap, want.Atomics = scope, true
		same("atomics")
	}
	p.dev.MaxSGERD, want.MaxReadSGE = 0, dev.MaxSGE
	same("no limit for reads")
	p.dev.MaxSRQWR, want.MaxSRQWR = 0, 0
	same("no shared receive queues")
	assert.Assert(t, !p.fabricAttr(7, 4096).EnforcesRNR)

	p.dev.VendorID, want.VendorID, want.VendorName = vendorRXE, vendorRXE, "Soft-RoCE"
	want.SRQOtherPD, want.ExactBounds, want.FailuresNotify = false, false, false
	same("soft-RoCE")
	p.dev.VendorID, want.VendorID, want.VendorName = vendorSIW, vendorSIW, "Soft-iWARP"
	want.SRQOtherPD, want.ExactBounds, want.EnforcesRNR, want.FailuresNotify = true, true, false, true
	p.iwarp, p.siw, want.Transport, want.Reach = true, true, "iWARP", reach("iWARP")
	want.SRQOtherPD, want.WriteImmediate, want.PeerToPeer, want.Acknowledged, want.SolicitedArm, want.ReadSinkRemote =
		false, false, false, false, false, true
	want.MaxConnData, want.MaxAcceptData, want.MaxRejectData = 251, 251, 251-4 // the marker of a Consumer's reject
	same("soft-iWARP")
	p.siw, want.SolicitedArm = false, true
	same("iWARP")
}

// TestReach: each transport has its own advice.
func TestReach(t *testing.T) {
	for transport, word := range map[string]string{
		"IB": "subnet manager", "iWARP": "TCP port", "RoCE v2": "UDP port 4791", "RoCE v1": "Ethernet segment",
	} {
		for other := range map[string]bool{"IB": true, "iWARP": true, "RoCE v2": true, "RoCE v1": true} {
			assert.Equal(t, strings.Contains(reach(other), word), other == transport, "%s and %s", other, word)
		}
	}
}
