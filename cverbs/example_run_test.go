package cverbs_test

import (
	"io"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
)

// If there is a device, each example runs, and prints what its last comment says.
func TestExample(t *testing.T) {
	needDevice(t)
	assert.Equal(t, printed(t, Example), "42 SUCCESS written by RDMA\n")
	assert.Equal(t, printed(t, ExampleContext_CreateCQEx), "1 42 SUCCESS\n")
	assert.Equal(t, printed(t, ExamplePD_AdviseMR), "1048576 bytes are registered\n")
}

func TestExampleExtendedQP(t *testing.T) {
	needDevice(t)
	if !hasExtendedQP() {
		t.Skip("the device has no extended queue pairs")
	}
	assert.Equal(t, printed(t, ExamplePD_CreateQP), "the peer has name=godat;\n")
}

func TestExampleMulticast(t *testing.T) {
	needDevice(t)
	if _, ok := firstRoCE(); !ok {
		t.Skip("no RoCE device with multicast here")
	}
	assert.Equal(t, printed(t, ExampleCMID_JoinMulticast), "member 0: SUCCESS, to all\nmember 1: SUCCESS, to all\n")
}

func needDevice(t *testing.T) {
	t.Helper()
	all, err := cverbs.Devices()
	if err != nil || len(all) == 0 || all[0].NodeType != cverbs.NodeCA {
		t.Skipf("no InfiniBand or RoCE device here (%v)", err)
	}
}

func hasExtendedQP() bool {
	all, err := cverbs.Devices()
	check(err)
	ctx, err := cverbs.OpenDevice(all[0].Name)
	check(err)
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	check(err)
	defer pd.Close()
	cq, err := ctx.CreateCQ(1, nil, 0)
	check(err)
	defer cq.Close()
	qp, err := pd.CreateQP(cverbs.QPInit{SendCQ: cq, RecvCQ: cq, SendOps: cverbs.WithSend,
		Cap: cverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return false
	}
	check(qp.Close())
	return true
}

// printed runs f and returns what it prints.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	out := os.Stdout
	os.Stdout = w
	func() {
		defer func() { os.Stdout = out }()
		f()
	}()
	assert.NilError(t, w.Close())
	text, err := io.ReadAll(r)
	assert.NilError(t, err)
	assert.NilError(t, r.Close())
	return string(text)
}
