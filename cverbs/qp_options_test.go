package cverbs

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// TestECE: a queue pair reports the requested options, as far as the device accepts them. Among the
// devices of the tests only the loop device has ECE options.
func TestECE(t *testing.T) {
	ctx := openDevice(t)
	e := newEnd(t, ctx)
	_, err := e.qp.SetECE(ECE{Options: 7})
	isErr(t, err, ErrNotSupported)
	accepted, err := e.qp.SetECE(ECE{VendorID: 0x15b3, Options: 0xfedcba98})
	if ctx.Name() != "loop0" {
		isErr(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "ibv_set_ece")
		assert.ErrorContains(t, err, "in INIT, VendorID 0x15b3, Options 0xfedcba98")
		_, err = e.qp.QueryECE()
		isErr(t, err, ErrNotSupported)
		return
	}
	assert.NilError(t, err)
	assert.Equal(t, accepted, ECE{VendorID: 0x15b3, Options: 0x98})
	now, err := e.qp.QueryECE()
	assert.NilError(t, err)
	assert.Equal(t, now, accepted)
	assert.NilError(t, e.qp.ToRTR(e.path(e.qp.Num())))
	_, err = e.qp.SetECE(ECE{VendorID: 0x15b3})
	isErr(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "in RTR, VendorID 0x15b3, Options 0x0: it needs RESET or INIT: ToReset, ToInit first")
}

// TestDataInOrder: no device of the tests promises an order.
func TestDataInOrder(t *testing.T) {
	e := newEnd(t, openDevice(t))
	for _, op := range []WROpcode{OpSend, OpRDMAWrite, OpRDMARead} {
		inOrder, err := e.qp.DataInOrder(op)
		assert.NilError(t, err)
		assert.Equal(t, inOrder, false)
	}
}

// TestRateLimitRefused: a device without rate limits says so.
func TestRateLimitRefused(t *testing.T) {
	ctx := openDevice(t)
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	if attr.RateLimitQPTypes.Has(QPTypeRC) {
		t.Skip("this device has rate limits")
	}
	assert.Equal(t, attr.RateLimitMax, uint32(0))
	err = newEnd(t, ctx).qp.SetRateLimit(RateLimit{Kbps: 1000, MaxBurst: 4096, TypicalPacket: 64})
	isErr(t, err, ErrNotSupported)
	assert.ErrorContains(t, err, "in INIT, {Kbps:1000")
	assert.ErrorContains(t, err, "the device has no rate limits")
}

// TestRateLimit: a queue pair in RTS accepts a limit that is within the device's limits.
func TestRateLimit(t *testing.T) {
	ctx := openDevice(t)
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	if !attr.RateLimitQPTypes.Has(QPTypeRC) {
		t.Skip("this device has no rate limits")
	}
	e := newEnd(t, ctx)
	assert.Assert(t, attr.RateLimitMax > attr.RateLimitMin)
	most := RateLimit{Kbps: attr.RateLimitMax}
	assert.ErrorContains(t, e.qp.SetRateLimit(most), fmt.Sprintf("in INIT, %+v: it needs RTS: ToRTR, ToRTS first",
		most))
	assert.NilError(t, e.qp.ToRTR(e.path(e.qp.Num())))
	assert.NilError(t, e.qp.ToRTS(e.path(e.qp.Num())))
	for _, kbps := range []uint32{0, attr.RateLimitMin, attr.RateLimitMax} {
		assert.NilError(t, e.qp.SetRateLimit(RateLimit{Kbps: kbps}))
	}
	for _, kbps := range []uint32{attr.RateLimitMin - 1, attr.RateLimitMax + 1} {
		assert.ErrorContains(t, e.qp.SetRateLimit(RateLimit{Kbps: kbps}), "DeviceAttr.RateLimitMin and RateLimitMax")
	}
}

// TestQPTypes: a set has the types of its bits, and no others.
func TestQPTypes(t *testing.T) {
	s := QPTypes(1<<QPTypeRC | 1<<QPTypeRawPacket)
	for i := QPType(0); i < 70; i++ {
		assert.Equal(t, s.Has(i), i == 2 || i == 8, "%d", i)
	}
	assert.Equal(t, s.String(), "RC|RAW_PACKET")
	assert.Equal(t, (s | 1<<QPTypeXRCRecv | 1).String(), "RC|RAW_PACKET|XRC_RECV|0x1")
	assert.Equal(t, QPTypes(0).String(), "0")
	assert.Assert(t, !QPTypes(0).Has(QPTypeRC))
	assert.Assert(t, QPTypes(1<<31).Has(31))
}

// TestResolveEthernet resolves the address of a neighbour and of a multicast group, and addresses
// that cannot be resolved.
func TestResolveEthernet(t *testing.T) {
	ctx := openRoCE(t)
	if ctx.Name() == "loop0" {
		_, _, err := ctx.ResolveEthernet(AHAttr{Port: 1})
		isErr(t, err, ErrNotSupported)
		return
	}
	gid, _, err := ctx.BestGID(1)
	assert.NilError(t, err)
	to := func(a string) AHAttr {
		return AHAttr{Port: 1, SGIDIndex: uint8(gid.Index), DGID: netip.MustParseAddr(a).As16()}
	}
	mac, vlan, err := ctx.ResolveEthernet(to("239.1.2.3"))
	assert.NilError(t, err)
	assert.Equal(t, mac.String(), "01:00:5e:01:02:03")
	assert.Equal(t, vlan, -1)

	near := gid.GID.Addr().Next().Next().Next()
	iface, err := net.InterfaceByName(gid.NetDev)
	assert.NilError(t, err)
	assert.Assert(t, len(iface.HardwareAddr) == 6)
	const want = "02:00:00:0a:0b:0c"
	set := []string{"neigh", "replace", near.String(), "lladdr", want, "dev", gid.NetDev, "nud", "permanent"}
	if out, err := exec.Command("ip", set...).CombinedOutput(); err != nil {
		t.Logf("no neighbour can be set here: %v %s", err, out)
	} else {
		mac, vlan, err = ctx.ResolveEthernet(to(near.String()))
		assert.NilError(t, err)
		assert.Equal(t, mac.String(), want)
		assert.Equal(t, vlan, -1)
		assert.NilError(t, exec.Command("ip", "neigh", "del", near.String(), "dev", gid.NetDev).Run())
	}
	attr := to("239.1.2.3")
	attr.SGIDIndex = 250
	_, _, err = ctx.ResolveEthernet(attr)
	assert.ErrorContains(t, err, "GID index 250 of port 1")
	_, _, err = ctx.ResolveEthernet(AHAttr{Port: 9})
	assert.Assert(t, err != nil)
	var none *Context
	_, vlan, err = none.ResolveEthernet(attr)
	assert.Equal(t, err, ErrClosed)
	assert.Equal(t, vlan, -1)
}
