package udat

import (
	"testing"

	"gotest.tools/v3/assert"
)

// Freeing an endpoint does not affect a newer endpoint whose queue pair has the same number.
func TestQueuePairNumberUsedAgain(t *testing.T) {
	ia, err := Open("mem0")
	assert.NilError(t, err)
	defer ia.Close(CloseAbrupt)
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	evd, err := ia.CreateEVD(16, EVDDTO|EVDConnection, nil)
	assert.NilError(t, err)
	srq, err := ia.CreateSRQ(pz, SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
	assert.NilError(t, err)
	before, err := ia.CreateEPWithSRQ(pz, evd, evd, evd, srq, &EPAttr{})
	assert.NilError(t, err)
	after, err := ia.CreateEPWithSRQ(pz, evd, evd, evd, srq, &EPAttr{})
	assert.NilError(t, err)
	num := before.requests.qp.Num()
	assert.NilError(t, after.recvs.source.attachShared("", num, srq, 4))
	assert.NilError(t, before.Free())
	assert.Assert(t, evd.shared[num].source == after.recvs.source)
	after.recvs.source.detachShared(num, srq)
	assert.Assert(t, evd.shared[num].source == nil)
}

// Freeing a window does not affect a newer window that has the same context.
func TestContextUsedAgain(t *testing.T) {
	var table windowTable
	before, after := new(RMR), new(RMR)
	table.add(7, before)
	table.add(7, after)
	table.remove(7, before)
	assert.Assert(t, table.byContext[7] == after)
	table.remove(7, after)
	assert.Equal(t, len(table.byContext), 0)
}

// A Bind of a window that is freed meanwhile allocates no new window from the device.
func TestRenewAfterFree(t *testing.T) {
	ia, err := Open("mem0")
	assert.NilError(t, err)
	defer ia.Close(CloseAbrupt)
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	r, err := pz.CreateRMR()
	assert.NilError(t, err)
	r.unsure = true
	assert.NilError(t, r.Free())
	assert.NilError(t, r.renew(""))
	assert.NilError(t, pz.Free())
}
