package cverbs

import (
	"os"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
)

// TestFork: forks are safe once ForkInit has succeeded, on old kernels and new ones. The test runs
// in a process of its own, because ForkInit cannot be undone.
func TestFork(t *testing.T) {
	if os.Getenv("GODAT_TEST_FORK") == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestFork$")
		child.Env = append(os.Environ(), "GODAT_TEST_FORK=1")
		out, err := child.CombinedOutput()
		assert.NilError(t, err, "%s", out)
		return
	}
	before, err := ForkInitialized()
	assert.NilError(t, err)
	assert.Assert(t, before != ForkEnabled, "nobody has asked for it")
	assert.NilError(t, ForkInit())
	after, err := ForkInitialized()
	assert.NilError(t, err)
	assert.Assert(t, after == ForkUnneeded && before == ForkUnneeded || after == ForkEnabled && before == ForkDisabled,
		"%v, then %v", before, after)
	assert.NilError(t, ForkInit(), "again")

	// Memory that is registered from now on works, even if another program is started meanwhile.
	a, b := newPair(t, openDevice(t))
	for i := range 3 {
		fill(a.buf[:4096], byte(i))
		b.recv(1, b.sge(0, 4096))
		assert.NilError(t, exec.Command("true").Run())
		a.send(SendWR{Opcode: OpSend}, a.sge(0, 4096))
		a.sent()
		b.received()
		assert.Equal(t, string(a.buf[:4096]), string(b.buf[:4096]))
	}
}
