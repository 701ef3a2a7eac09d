//go:build linux && cgo

package cverbs

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestGetAddrInfo looks up addresses and ports of both families, to listen and to connect; looks up
// unknown names; and ends the context.
func TestGetAddrInfo(t *testing.T) {
	notOnLoop(t, openDevice(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, c := range []struct {
		node, service string
		hints         AddrInfo
		want          AddrInfo
	}{
		{"10.98.0.1", "7471", AddrInfo{}, AddrInfo{Type: QPTypeRC, PortSpace: PortSpaceTCP,
			Dst: netip.MustParseAddrPort("10.98.0.1:7471")}},
		{"fd98::1", "65535", AddrInfo{NumericHost: true}, AddrInfo{Type: QPTypeRC, PortSpace: PortSpaceTCP,
			Dst: netip.MustParseAddrPort("[fd98::1]:65535")}},
		{"10.98.0.1", "1", AddrInfo{Type: QPTypeUD, PortSpace: PortSpaceUDP}, AddrInfo{Type: QPTypeUD,
			PortSpace: PortSpaceUDP, Dst: netip.MustParseAddrPort("10.98.0.1:1")}},
		{"10.98.0.1", "2", AddrInfo{Passive: true}, AddrInfo{Passive: true, Type: QPTypeRC, PortSpace: PortSpaceTCP,
			Src: netip.MustParseAddrPort("10.98.0.1:2")}},
		{"", "3", AddrInfo{Passive: true, Family: 6}, AddrInfo{Passive: true, Type: QPTypeRC, PortSpace: PortSpaceTCP,
			Src: netip.MustParseAddrPort("[::]:3")}},
		{"", "3", AddrInfo{Passive: true, Family: 4}, AddrInfo{Passive: true, Type: QPTypeRC, PortSpace: PortSpaceTCP,
			Src: netip.MustParseAddrPort("0.0.0.0:3")}},
		{"10.98.0.1", "4", AddrInfo{Src: netip.MustParseAddrPort("10.98.0.2:5")}, AddrInfo{Type: QPTypeRC,
			PortSpace: PortSpaceTCP, Src: netip.MustParseAddrPort("10.98.0.2:5"), Dst: netip.MustParseAddrPort("10.98.0.1:4")}},
	} {
		all, err := GetAddrInfo(ctx, c.node, c.service, c.hints)
		assert.NilError(t, err, "%+v", c)
		assert.Equal(t, len(all), 1)
		assert.Equal(t, all[0], c.want)
	}
	for _, c := range []struct {
		node, service string
		hints         AddrInfo
		errno         syscall.Errno
		want          string
	}{
		{"", "", AddrInfo{}, syscall.EINVAL, "node and service are empty"},
		{"a\x00b", "", AddrInfo{}, syscall.EINVAL, `node "a\x00b"`},
		{"1.2.3.4", "5", AddrInfo{Family: 5}, syscall.EINVAL, "Family 5 is not 0, 4 or 6"},
		{"no-address", "5", AddrInfo{NumericHost: true}, syscall.ENOENT, `node "no-address", service "5": `},
		{"10.98.0.1", "no-such-service", AddrInfo{}, syscall.ENOENT, `service "no-such-service": `},
		{"10.98.0.1", "1", AddrInfo{Family: 6}, syscall.ENOENT, "10.98.0.1"},
		{"10.98.0.1", "1", AddrInfo{Src: netip.MustParseAddrPort("[fe80::1%no-such-if]:1")}, syscall.EINVAL, "no-such-if"},
	} {
		_, err := GetAddrInfo(ctx, c.node, c.service, c.hints)
		isErr(t, err, c.errno)
		assert.ErrorContains(t, err, c.want)
	}

	over, end := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("enough")
	end(cause)
	_, err := GetAddrInfo(over, "10.98.0.1", "1", AddrInfo{})
	assert.Equal(t, err, cause)
	for range cap(resolving) { // other look-ups, which do not return
		resolving <- struct{}{}
	}
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = GetAddrInfo(short, "10.98.0.1", "1", AddrInfo{})
	assert.Equal(t, err, context.DeadlineExceeded)
	for range cap(resolving) {
		<-resolving
	}
	_, err = GetAddrInfo(ctx, "10.98.0.1", "1", AddrInfo{})
	assert.NilError(t, err)
}

// TestCreateEP: two ids, created from addresses that were looked up by name, connect, and their
// events come to their channels.
func TestCreateEP(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	for _, local := range localAddrs(t, ctx) {
		if local.IsLinkLocalUnicast() {
			continue
		}
		sch, cch := closing[*EventChannel](t)(CreateEventChannel()), closing[*EventChannel](t)(CreateEventChannel())
		at, err := GetAddrInfo(t.Context(), local.String(), "0", AddrInfo{Passive: true})
		assert.NilError(t, err)
		lid := closing[*CMID](t)(sch.CreateEP(at[0]))
		assert.Equal(t, lid.LocalAddr().Addr(), local)
		assert.NilError(t, lid.Listen(4))
		to, err := GetAddrInfo(t.Context(), local.String(), fmt.Sprint(lid.LocalAddr().Port()), AddrInfo{NumericHost: true})
		assert.NilError(t, err)
		for range 2 {
			client := closing[*CMID](t)(cch.CreateEP(to[0]))
			assert.Equal(t, client.Device(), ctx.Name())
			a := newEnd(t, ctx)
			assert.NilError(t, client.Connect(ConnParam{QPNum: a.qp.Num(), RetryCount: 7}))
			server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
			assert.Equal(t, server.RemoteAddr(), client.LocalAddr())
			assert.NilError(t, server.Reject([]byte("seen")))
			ev := want(t, cch, CMEventRejected)
			assert.Equal(t, ev.ID, client)
			assert.Equal(t, string(ev.PrivateData[:4]), "seen")
			assert.NilError(t, client.Close())
		}
		isErr(t, sch.Close(), ErrInUse)
	}
}

func TestCreateEPBadInput(t *testing.T) {
	ctx := openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	good := netip.MustParseAddrPort("10.98.0.1:7")
	for want, info := range map[string]AddrInfo{
		"the address is not valid":  {PortSpace: PortSpaceTCP, Src: good},
		"address is not valid: Src": {PortSpace: PortSpaceTCP, Passive: true, Dst: good},
		"PortSpace is 0":            {Dst: good},
		"no-such-if":                {PortSpace: PortSpaceTCP, Dst: netip.MustParseAddrPort("[fe80::1%no-such-if]:1")},
	} {
		_, err := ch.CreateEP(info)
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
	if ctx.Name() != "loop0" {
		for _, info := range []AddrInfo{
			{PortSpace: PortSpaceTCP, Dst: netip.MustParseAddrPort("203.0.113.77:5000")},
			{PortSpace: PortSpaceTCP, Passive: true, Src: netip.MustParseAddrPort("203.0.113.77:5000")},
		} {
			_, err := ch.CreateEP(info)
			assert.ErrorContains(t, err, "203.0.113.77:5000")
		}
	}
	assert.NilError(t, ch.Close(), "what failed is gone")
	_, err := ch.CreateEP(AddrInfo{PortSpace: PortSpaceTCP, Dst: good})
	isErr(t, err, ErrClosed)
}

// TestCMRejectECE: the peer learns that its options were the reason for the rejection.
func TestCMRejectECE(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	e := newEnd(t, ctx)
	sch, lid := listen(t, localAddr(t, ctx))
	cch := closing[*EventChannel](t)(CreateEventChannel())
	client := resolve(t, cch, lid.LocalAddr())
	assert.NilError(t, client.SetLocalECE(ECE{VendorID: 0x15b3, Options: 7}))
	assert.NilError(t, client.Connect(ConnParam{QPNum: e.qp.Num()}))
	server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
	ece, err := server.RemoteECE()
	assert.NilError(t, err)
	assert.Equal(t, ece, ECE{VendorID: 0x15b3, Options: 7})
	err = server.RejectECE(make([]byte, 256))
	isErr(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "256 bytes of private data, at most 255")
	assert.NilError(t, server.RejectECE([]byte("not these")))
	ev := want(t, cch, CMEventRejected)
	assert.Equal(t, ev.Status, RejectVendorOption)
	assert.Equal(t, string(ev.PrivateData[:9]), "not these")
	isErr(t, ev.Err(), syscall.ECONNREFUSED)
	assert.ErrorContains(t, ev.Err(), "ECE options")
}
