package cverbs

import (
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// TestStateErrors: what the state of a queue pair does not allow is refused by an error that names
// the state, the call and what to do; and what it says helps.
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

	// What it said.
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

// TestStateAdvice: each pair of states of each type, without a device. What is not allowed has a
// way out that ends in a state from which it is.
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
		QPTypeUC: "from RTR to RTS, attributes STATE|SQ_PSN",
	} {
		assert.Equal(t, modifyAdvice(typ, QPStateRTR, &QPAttr{State: QPStateRTS}, QPAttrState|QPAttrSQPSN), want)
	}
	assert.Equal(t, modifyAdvice(QPTypeUD, QPStateReset, &QPAttr{State: QPStateInit}, QPAttrState|QPAttrPort),
		"from RESET to INIT: attributes PKEY_INDEX|QKEY are missing")
	assert.Equal(t, modifyAdvice(QPTypeRC, QPStateRTS, &QPAttr{}, QPAttrPort), "in RTS, attributes PORT")
	assert.Equal(t, postAdvice("PostSend", 5, QPStateInit, true),
		"PostSend on QP 5 in INIT: it needs RTS: Connect or Accept of its id first")
}
