package rule

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestLedger: what a test shows is recorded once, when it has passed, and nothing of a test that is
// skipped halfway.
func TestLedger(t *testing.T) {
	out := filepath.Join(t.TempDir(), "records")
	t.Setenv(outEnv, out)
	t.Run("mem0", func(t *testing.T) {
		l := NewLedger(t)
		l.Proves("B-2", "A-1")
		l.Proves("A-1")
		assert.Equal(t, l.Count("A-1"), 2)
		assert.Equal(t, l.Count("A-2"), 0)
		_, err := os.Stat(out)
		assert.Assert(t, os.IsNotExist(err), "recorded before the end")
	})
	t.Run("mem1", func(t *testing.T) {
		Proves(t, "A-3")
		t.Skip("halfway")
	})
	NewLedger(t)
	got, err := os.ReadFile(out)
	assert.NilError(t, err)
	assert.Equal(t, string(got), "A-1\tmem0\tTestLedger/mem0\nB-2\tmem0\tTestLedger/mem0\n")
}
