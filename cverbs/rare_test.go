//go:build linux && cgo

package cverbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// Features that only some NICs have. On other devices each test checks that the error names the
// verb.

// A message goes into the shared receive queue that the message names.
func TestXRC(t *testing.T) {
	ctx := openRoCE(t)
	x := closing[*XRCD](t)(orSkip[*XRCD](t, "ibv_open_xrcd")(ctx.OpenXRCD(-1, os.O_CREATE)), nil)
	a, b := newEnd(t, ctx, func(i *QPInit) { i.Type, i.RecvCQ = QPTypeXRCSend, nil }), newEnd(t, ctx)
	srq := closing[*SRQ](t)(b.pd.CreateSRQ(SRQInit{MaxWR: 8, MaxSGE: 1, XRCD: x, CQ: b.rcq}))
	num, err := srq.Num()
	assert.NilError(t, err)
	recv := closing[*QP](t)(x.CreateQP())
	again := closing[*QP](t)(x.OpenQP(recv.Num()))
	assert.Equal(t, again.Num(), recv.Num())
	assert.ErrorContains(t, x.Close(), "in use by 1 SRQ, 2 QP")
	assert.NilError(t, recv.ToInit(1, AccessRemoteWrite))
	assert.NilError(t, recv.ToRTR(b.path(a.qp.Num())))
	assert.NilError(t, recv.ToRTS(b.path(a.qp.Num())))
	assert.NilError(t, a.qp.ToRTR(a.path(recv.Num())))
	assert.NilError(t, a.qp.ToRTS(a.path(recv.Num())))
	_, err = srq.PostRecv([]RecvWR{{ID: 5, NumSGE: 1}}, []SGE{b.sge(0, 100)})
	assert.NilError(t, err)
	fill(a.buf[:100], 1)
	a.send(SendWR{Opcode: OpSend, RemoteQPN: num}, a.sge(0, 100))
	a.sent()
	assert.Equal(t, b.received().ID, uint64(5))
	assert.Assert(t, bytes.Equal(a.buf[:100], b.buf[:100]))
}

// An SRQ with only one of XRCD and CQ is refused. An SRQ without both has no number, and Num says
// so.
func TestXRCRefused(t *testing.T) {
	e := newEnd(t, openDevice(t))
	for _, init := range []SRQInit{{MaxWR: 1, MaxSGE: 1, CQ: e.rcq}, {MaxWR: 1, MaxSGE: 1, XRCD: &XRCD{}}} {
		_, err := e.pd.CreateSRQ(init)
		assert.ErrorContains(t, err, "XRCD and CQ: only one of them is nil")
	}
	_, err := e.pd.CreateSRQ(SRQInit{MaxWR: 1, MaxSGE: 1, CQ: e.rcq, XRCD: &XRCD{}})
	assert.ErrorIs(t, err, ErrClosed)
	srq := closing[*SRQ](t)(orSkip[*SRQ](t, "ibv_create_srq")(e.pd.CreateSRQ(SRQInit{MaxWR: 1, MaxSGE: 1})), nil)
	if _, err = srq.Num(); err != nil {
		assert.ErrorContains(t, err, "ibv_get_srq_num")
	}
}

// A table of receive queues receives the packets of one queue pair.
func TestRSS(t *testing.T) {
	ctx := openDevice(t)
	e := newEnd(t, ctx)
	other := openDevice(t)
	foreign := closing[*CQ](t)(other.CreateCQ(4, nil, 0))
	init := WQInit{CQ: e.rcq, MaxWR: 8, MaxSGE: 1}
	for _, c := range []struct {
		change func(*WQInit)
		want   string
	}{
		{func(i *WQInit) { i.CQ = nil }, "CQ is nil"},
		{func(i *WQInit) { i.MaxWR = 0 }, "MaxWR 0 and MaxSGE 1 must be at least 1"},
		{func(i *WQInit) { i.MaxSGE = 0 }, "MaxSGE 0 must"},
		{func(i *WQInit) { i.CQ = foreign }, "not of one device context"},
		{func(i *WQInit) { i.CQ = &CQ{} }, "use of closed object"},
	} {
		bad := init
		c.change(&bad)
		_, err := e.pd.CreateWQ(bad)
		assert.ErrorContains(t, err, c.want)
	}
	for _, n := range []int{0, 3, 5} {
		_, err := ctx.CreateIndTable(make([]*WQ, n))
		assert.ErrorContains(t, err, "the number must be a power of two")
	}
	_, err := ctx.CreateIndTable([]*WQ{nil})
	assert.ErrorIs(t, err, ErrClosed)

	w := closing[*WQ](t)(orSkip[*WQ](t, "ibv_create_wq")(e.pd.CreateWQ(init)), nil)
	assert.NilError(t, w.Modify(WQAttr{Mask: WQAttrState, State: WQStateReady}))
	_, err = w.PostRecv([]RecvWR{{NumSGE: 1}}, []SGE{e.sge(0, 2048)})
	assert.NilError(t, err)
	table := closing[*IndTable](t)(orSkip[*IndTable](t, "ibv_create_rwq_ind_table")(ctx.CreateIndTable([]*WQ{w, w})), nil)
	assert.ErrorContains(t, w.Close(), "in use by 2 IndTable")
	closing[*QP](t)(e.pd.CreateQP(QPInit{Type: QPTypeRawPacket, RSS: &RSS{Table: table, Function: HashToeplitz,
		Key: make([]byte, 40), Fields: HashSrcIPv4 | HashDstIPv4}}))
	assert.ErrorContains(t, table.Close(), "in use by 1 QP")
}

// TestWQStates: the errors of a receive queue name the state, the call and what to do. To follow
// the advice helps. Posted receives are flushed in ERR, and dropped in RESET.
func TestWQStates(t *testing.T) {
	e := newEnd(t, openDevice(t))
	w := closing[*WQ](t)(orSkip[*WQ](t, "ibv_create_wq")(e.pd.CreateWQ(WQInit{CQ: e.rcq, MaxWR: 2, MaxSGE: 1})), nil)
	to := func(s WQState) error { return w.Modify(WQAttr{Mask: WQAttrState, State: s}) }
	post := func(id uint64) error {
		_, err := w.PostRecv([]RecvWR{{ID: id, NumSGE: 1}}, []SGE{e.sge(0, 64)})
		return err
	}
	on := fmt.Sprintf(" on WQ %d in ", w.Num())
	refused := func(err error, want string) {
		t.Helper()
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
	refused(post(1), "PostRecv"+on+"RESET: it needs RDY: Modify to RDY first")
	refused(to(WQStateErr), "Modify"+on+"RESET to ERR: it needs RDY: Modify to RDY first")
	refused(w.Modify(WQAttr{Mask: WQAttrState | WQAttrCurState, State: WQStateReady, CurState: WQStateErr}),
		"Modify"+on+"RESET: CurState is ERR; leave it out or correct it")
	refused(w.Modify(WQAttr{Mask: WQAttrFlags, Flags: WQDelayDrop, FlagsMask: 7}), "Modify"+on+"RESET, flags 0x4 of 0x7: ")
	assert.NilError(t, to(WQStateReady))
	refused(to(WQStateReady), "Modify"+on+"RDY to RDY: the state goes from RESET to RDY, and from RDY to ERR or RESET")
	for id := range uint64(2) {
		assert.NilError(t, post(id))
	}
	isErr(t, post(2), syscall.ENOMEM)
	assert.NilError(t, to(WQStateErr))
	for id := range uint64(2) {
		wc := poll(t, e.rcq, 1)[0]
		assert.Equal(t, wc.ID, id)
		assert.Equal(t, wc.Status, WCWRFlushErr)
	}
	refused(to(WQStateReady), "Modify"+on+"ERR to RDY: it needs RESET: Modify to RESET first")
	assert.NilError(t, to(WQStateReset))
	assert.NilError(t, to(WQStateReady))
	assert.NilError(t, post(3))
}

// A flow steers and counts packets. Its specifications are checked first.
func TestFlow(t *testing.T) {
	ctx := openDevice(t)
	e := newEnd(t, ctx)
	type mine struct{ FlowDrop }
	for _, bad := range [][]FlowSpec{{FlowDrop{}, nil}, {FlowTag{}, &FlowEth{}}, {FlowTag{}, mine{}}} {
		_, err := e.qp.CreateFlow(FlowAttr{}, bad)
		assert.ErrorContains(t, err, "ibv_create_flow: invalid argument (specification 1 is a ")
	}
	_, err := e.qp.CreateFlow(FlowAttr{}, make([]FlowSpec, 256))
	assert.ErrorContains(t, err, "256 specifications: it takes at most 255")
	_, err = e.qp.CreateFlow(FlowAttr{}, []FlowSpec{FlowCount{}})
	assert.ErrorIs(t, err, ErrClosed)

	f, err := e.qp.CreateFlow(FlowAttr{Port: 1}, []FlowSpec{FlowEth{Mask: FlowEthFields{EtherType: 0xffff},
		Val: FlowEthFields{EtherType: 0x800}}, FlowDrop{}})
	var v *Error
	if errors.As(err, &v) && (v.Errno == syscall.EINVAL || v.Errno == syscall.EPERM) { // an RC queue pair
		assert.Equal(t, v.Verb, "ibv_create_flow")
		t.Skip(err)
	}
	assert.NilError(t, orSkip[*Flow](t, "ibv_create_flow")(f, err).Close())
}

// Counters are for flows.
func TestCounters(t *testing.T) {
	ctx := openDevice(t)
	k := closing[*Counters](t)(orSkip[*Counters](t, "ibv_create_counters")(ctx.CreateCounters()), nil)
	assert.NilError(t, k.Attach(nil, CountPackets, 0))
	assert.NilError(t, k.Attach(nil, CountBytes, 1))
	assert.NilError(t, k.Read(make([]uint64, 2), ReadCountersPreferCached))
	assert.ErrorContains(t, k.Read(nil, 0), "0 values: it takes 1")
	assert.ErrorIs(t, k.Attach(&Flow{}, CountBytes, 1), ErrClosed)
}

// A second context of the same device, imported from the descriptor of the first one, can import
// the objects of the first one.
func TestImport(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	m := closing[*MR](t)(pd.RegMR(make([]byte, 4096), AccessLocalWrite))
	null, err := os.Open(os.DevNull)
	assert.NilError(t, err)
	defer null.Close()
	for _, fd := range []int{-1, 1 << 20, int(null.Fd())} {
		_, err := ImportDevice(fd)
		var v *Error
		assert.Assert(t, errors.As(err, &v), "%v", err)
		assert.Equal(t, v.Verb, "ibv_import_device")
	}
	_, err = ctx.ImportPD(1 << 30)
	assert.ErrorContains(t, err, "ibv_import_pd")
	_, err = pd.ImportMR(1 << 30)
	assert.ErrorContains(t, err, "ibv_import_mr")
	_, err = ctx.ImportDM(1 << 30)
	assert.ErrorContains(t, err, "ibv_import_dm")

	fd, err := ctx.CommandFD()
	assert.NilError(t, err)
	if fd < 0 {
		t.Skip("this device has no descriptor for commands")
	}
	mine, err := syscall.Dup(fd)
	assert.NilError(t, err)
	second, err := ImportDevice(mine)
	if err != nil {
		syscall.Close(mine)
	}
	second = closing[*Context](t)(orSkip[*Context](t, "ibv_import_device")(second, err), nil)
	assert.Equal(t, second.Name(), ctx.Name())
	shared := closing[*PD](t)(orSkip[*PD](t, "ibv_import_pd")(second.ImportPD(pd.Handle())), nil)
	region := closing[*MR](t)(orSkip[*MR](t, "ibv_import_mr")(shared.ImportMR(m.Handle())), nil)
	assert.Equal(t, region.RKey(), m.RKey())
}

// TestWideDescriptors: a descriptor that does not fit into a C int is refused. Truncated it would
// be 0.
func TestWideDescriptors(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("an int is a C int")
	}
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	for _, bit := range []int{32, 63} {
		fd := 1 << bit
		want := fmt.Sprintf("descriptor %d: it must be at most 2147483647", fd)
		_, err := ImportDevice(fd)
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
		_, err = pd.RegDMABuf(fd, 0, 4096, 0, AccessLocalWrite)
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
		_, err = ctx.OpenXRCD(fd, os.O_CREATE)
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
}

// Each specification has the memory layout of C: type and size, the values, the mask, and numbers
// in network byte order.
func TestFlowBytes(t *testing.T) {
	eth := FlowEthFields{Dst: [6]byte{1, 2, 3, 4, 5, 6}, Src: [6]byte{7, 8, 9, 10, 11, 12}, EtherType: 0x0d0e,
		VLAN: 0x0f10}
	ip := FlowIPv4Fields{Src: [4]byte{1, 2, 3, 4}, Dst: [4]byte{5, 6, 7, 8}}
	ext := FlowIPv4ExtFields{Src: [4]byte{1, 2, 3, 4}, Dst: [4]byte{5, 6, 7, 8}, Proto: 9, TOS: 10, TTL: 11, Flags: 12}
	v6 := FlowIPv6Fields{FlowLabel: 0x21222324, NextHdr: 0x25, TrafficClass: 0x26, HopLimit: 0x27}
	for i := range 16 {
		v6.Src[i], v6.Dst[i] = byte(i+1), byte(i+17)
	}
	for _, c := range []struct {
		spec   FlowSpec
		typ    uint16
		val    int // offset of the values
		fields int // bytes of values, which count 1, 2, 3, ...
		step   int // distance from the values to the mask
		size   int
	}{
		{FlowEth{Val: eth}, 0x20, 6, 16, 16, 40},
		{FlowIPv4{Val: ip, Inner: true}, 0x130, 8, 8, 8, 24},
		{FlowIPv4Ext{Val: ext}, 0x32, 8, 12, 12, 32},
		{FlowIPv6{Val: v6}, 0x31, 8, 39, 40, 88},
		{FlowTCP{Val: FlowPorts{Dst: 0x0102, Src: 0x0304}}, 0x40, 6, 4, 4, 16},
		{FlowUDP{Val: FlowPorts{Dst: 0x0102, Src: 0x0304}, Inner: true}, 0x141, 6, 4, 4, 16},
		{FlowESP{Val: FlowESPFields{SPI: 0x01020304, Seq: 0x05060708}}, 0x34, 8, 8, 8, 24},
		{FlowVXLAN{Val: 0x01020304}, 0x50, 8, 4, 4, 16},
		{FlowGRE{Val: FlowGREFields{Flags: 0x0102, Protocol: 0x0304, Key: 0x05060708}}, 0x51, 8, 8, 8, 24},
		{FlowMPLS{Val: 0x01020304, Inner: true}, 0x160, 8, 4, 4, 16},
		{FlowDrop{}, 0x1001, 8, 0, 0, 8},
	} {
		want := make([]byte, c.size)
		order := binary.NativeEndian
		order.PutUint32(want, uint32(c.typ))
		order.PutUint16(want[4:], uint16(c.size))
		for i := range c.fields {
			want[c.val+i] = byte(i + 1)
		}
		assert.DeepEqual(t, specBytes(c.spec), want)
		if c.fields > 0 {
			copy(want[c.val+c.step:], want[c.val:c.val+c.fields])
			clear(want[c.val : c.val+c.fields])
			assert.DeepEqual(t, specBytes(masked(c.spec)), want)
		}
	}
	tag := specBytes(FlowTag{Tag: 0x01020304})
	assert.Equal(t, len(tag), 12)
	assert.Equal(t, binary.NativeEndian.Uint32(tag[8:]), uint32(0x01020304)) // only the tag is in host byte order

	all, err := flowBytes(FlowAttr{Type: FlowSniffer, Port: 2, Priority: 0x0304, Flags: FlowEgress},
		[]FlowSpec{FlowTag{}, FlowDrop{}})
	assert.NilError(t, err)
	assert.Equal(t, len(all), 20+12+8)
	order := binary.NativeEndian
	assert.Equal(t, order.Uint32(all[4:]), uint32(3))
	assert.Equal(t, order.Uint16(all[8:]), uint16(40))
	assert.Equal(t, order.Uint16(all[10:]), uint16(0x0304))
	assert.Equal(t, all[12], byte(2))
	assert.Equal(t, all[13], byte(2))
	assert.Equal(t, order.Uint32(all[16:]), uint32(4))
	assert.Equal(t, order.Uint32(all[20:]), uint32(0x1000))
	assert.Equal(t, order.Uint32(all[32:]), uint32(0x1001))
}

// masked returns the specification with a mask that is equal to its values.
func masked(s FlowSpec) FlowSpec {
	v := reflect.New(reflect.TypeOf(s)).Elem()
	v.Set(reflect.ValueOf(s))
	v.FieldByName("Mask").Set(v.FieldByName("Val"))
	v.FieldByName("Val").SetZero()
	return v.Interface().(FlowSpec)
}
