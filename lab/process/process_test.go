package process

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// If a program fails or does not end, the error contains the last lines of its output.
func TestProcesses(t *testing.T) {
	p, err := Start(time.Minute, nil, "sh", "-c", "echo figures; echo broken >&2; exit 3")
	assert.NilError(t, err)
	out, err := p.Wait()
	assert.Equal(t, out, "figures\n")
	assert.ErrorContains(t, err, "broken")
	assert.ErrorContains(t, p.Until(time.Minute, func() bool { return false }), "ended before it was ready")

	p, err = Start(50*time.Millisecond, nil, "sleep", "60")
	assert.NilError(t, err)
	_, err = p.Wait()
	assert.ErrorContains(t, err, "no end after 50ms")
	_, err = Start(time.Minute, nil, "/no/such/program")
	assert.Assert(t, err != nil)
}
