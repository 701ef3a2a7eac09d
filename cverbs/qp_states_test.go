package cverbs

import (
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// TestStateErrors: if the state of a queue pair does not allow a call, the error names the state,
// the call and what to do. To follow the advice helps.
func TestStateErrors(t *testing.T) {
	ctx := openRoCE(t)
	e := newEnd(t, ctx)
	refused := func(err error, want string) {
		t.Helper()
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want)
	}
	post := func() error { _, err := e.qp.PostSend([]SendWR{{Opcode: OpSend}}, nil); return err }
	recv := func() error { _, err := e.qp.PostRecv([]RecvWR{{}}, nil); return err }
	path := e.path(e.qp.Num())

	assert.NilError(t, e.qp.ToReset())
	refused(post(), "PostSend on QP "+num(e)+" in RESET: it needs RTS: ToInit, ToRTR, ToRTS first")
	refused(recv(), "PostRecv on QP "+num(e)+" in RESET: it needs INIT or later: ToInit first")
	refused(e.qp.ToRTR(path), "QP "+num(e)+" in RESET, which does not go to RTR: ToInit first")
	refused(e.qp.ToRTS(path), "in RESET, which does not go to RTS: ToInit, ToRTR first")
	refused(e.qp.ToError(), "in RESET, which does not go to ERR: ToInit first")

	assert.NilError(t, e.qp.ToInit(1, 0))
	assert.NilError(t, recv())
	refused(post(), "in INIT: it needs RTS: ToRTR, ToRTS first")
	refused(e.qp.ToRTS(path), "in INIT, which does not go to RTS: ToRTR first")
	refused(e.qp.Modify(QPAttr{State: QPStateRTR, DestQPNum: 1}, QPAttrState|QPAttrDestQPN),
		"from INIT to RTR: attributes AV|PATH_MTU")

	assert.NilError(t, e.qp.ToRTR(path))
	refused(post(), "in RTR: it needs RTS: ToRTS first")
	refused(e.qp.ToInit(1, 0), "in RTR, which does not go to INIT: ToReset first")
	assert.NilError(t, e.qp.ToRTS(path))
	refused(e.qp.ToRTR(path), "in RTS, which does not go to RTR: ToReset, ToInit first")
	refused(e.qp.ToInit(1, 0), "in RTS, which does not go to INIT: ToReset first")

	assert.NilError(t, e.qp.ToError())
	refused(e.qp.ToRTS(path), "in ERR, which does not go to RTS: ToReset, ToInit, ToRTR first")
	refused(e.qp.ToInit(1, 0), "in ERR, which does not go to INIT: ToReset first")

	// Follow the advice.
	assert.NilError(t, e.qp.ToReset())
	assert.NilError(t, e.qp.ToInit(1, 0))
	assert.NilError(t, e.qp.ToRTR(path))
	assert.NilError(t, e.qp.ToRTS(path))

	// A bind is a post, too.
	if mw, err := e.pd.AllocMW(MWType2); err == nil {
		closing[*MW](t)(mw, err)
		assert.NilError(t, e.qp.ToReset())
		_, err := e.qp.BindMW(mw, BindWR{MR: e.mr, Addr: e.mr.Addr(), Length: 8, Access: AccessRemoteRead})
		refused(err, "BindMW on QP "+num(e)+" in RESET: it needs RTS: ToInit, ToRTR, ToRTS first")
	}
	assert.NilError(t, e.qp.Close())
	assert.Equal(t, post(), ErrClosed)
}

func num(e *end) string { return fmt.Sprint(e.qp.Num()) }

// TestStateAdvice checks each pair of states of each type, without a device. If a transition is not
// allowed, the advice leads to a state from which it is allowed.
func TestStateAdvice(t *testing.T) {
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD} {
		for from := QPStateReset; from <= QPStateErr; from++ {
			for to := QPStateReset; to <= QPStateErr; to++ {
				text := modifyAdvice(typ, from, &QPAttr{State: to}, QPAttrState)
				assert.Assert(t, from == QPStateReset || qpGoes(from, QPStateErr))
				assert.Assert(t, qpGoes(from, QPStateReset))
				if qpGoes(from, to) {
					continue
				}
				assert.Assert(t, qpGoes(qpBefore[to], to) || to == QPStateSQE, "%v", text)
				calls := qpCallsTo(from, qpBefore[to])
				assert.Assert(t, calls != "" || to == QPStateSQE, "%v to %v: %v", from, to, text)
			}
		}
	}
	for typ, want := range map[QPType]string{
		QPTypeRC: "from RTR to RTS: attributes TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC are missing",
		QPTypeUC: "from RTR to RTS, attributes STATE|SQ_PSN: one of them is not for this transition, or has a value that " +
			"the device does not take",
	} {
		assert.Equal(t, modifyAdvice(typ, QPStateRTR, &QPAttr{State: QPStateRTS}, QPAttrState|QPAttrSQPSN), want)
	}
	assert.Equal(t, modifyAdvice(QPTypeUD, QPStateReset, &QPAttr{State: QPStateInit}, QPAttrState|QPAttrPort),
		"from RESET to INIT: attributes PKEY_INDEX|QKEY are missing")
	assert.Equal(t, modifyAdvice(QPTypeRC, QPStateRTS, &QPAttr{}, QPAttrPort),
		"in RTS, attributes PORT: without STATE a device takes few of them; change them in a transition")
	assert.Equal(t, postAdvice("PostSend", 5, QPStateInit, true),
		"PostSend on QP 5 in INIT: it needs RTS: Connect or Accept of its id first")
}

// TestOptionAdvice: the errors of SetECE and SetRateLimit name the call, the state and what to do.
func TestOptionAdvice(t *testing.T) {
	ece, rate := ECE{VendorID: 1, Options: 2}, RateLimit{Kbps: 3}
	for _, c := range []struct{ got, want string }{
		{eceAdvice(5, QPStateInit, ece, syscall.EINVAL), "SetECE on QP 5 in INIT, VendorID 0x1, Options 0x2: " +
			"QueryECE returns the options that the driver takes"},
		{eceAdvice(5, QPStateRTS, ece, syscall.EINVAL), "SetECE on QP 5 in RTS, VendorID 0x1, Options 0x2: " +
			"it needs RESET or INIT: ToReset, ToInit first"},
		{eceAdvice(5, QPStateRTS, ece, syscall.EOPNOTSUPP), "SetECE on QP 5 in RTS, VendorID 0x1, Options 0x2: " +
			"the driver has no such options; connect without them"},
		{rateAdvice(5, QPStateRTR, rate, syscall.EINVAL), "SetRateLimit on QP 5 in RTR, " +
			"{Kbps:3 MaxBurst:0 TypicalPacket:0}: it needs RTS: ToRTS first"},
		{rateAdvice(5, QPStateErr, rate, syscall.EINVAL), "SetRateLimit on QP 5 in ERR, " +
			"{Kbps:3 MaxBurst:0 TypicalPacket:0}: it needs RTS: ToReset, ToInit, ToRTR, ToRTS first"},
		{rateAdvice(5, QPStateRTS, rate, syscall.EINVAL), "SetRateLimit on QP 5 in RTS, " +
			"{Kbps:3 MaxBurst:0 TypicalPacket:0}: DeviceAttr.RateLimitMin and RateLimitMax are the device's limits"},
		{rateAdvice(5, QPStateRTS, rate, syscall.EOPNOTSUPP), "SetRateLimit on QP 5 in RTS, " +
			"{Kbps:3 MaxBurst:0 TypicalPacket:0}: the device has no rate limits; limit the posts"},
	} {
		assert.Equal(t, c.got, c.want)
	}
}
