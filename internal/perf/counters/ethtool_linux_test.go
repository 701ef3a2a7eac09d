package counters

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// driverStatistics reads what ethtool -S prints, of each network device that has statistics.
func TestStats(t *testing.T) {
	all, err := net.Interfaces()
	assert.NilError(t, err)
	for _, i := range all {
		got, err := driverStatistics(i.Name)
		out, err2 := exec.Command("ethtool", "-S", i.Name).Output()
		if errors.Is(err2, exec.ErrNotFound) {
			t.Skip("no ethtool to compare with")
		}
		assert.Equal(t, err == nil, err2 == nil, "%s: %v, %v", i.Name, err, err2)
		n := 0
		for line := range strings.Lines(string(out)) {
			name, value, isStat := strings.Cut(strings.TrimSpace(line), ": ")
			if _, known := got[name]; isStat && value != "" {
				assert.Assert(t, known, "%s: ethtool has %s", i.Name, name)
				n++
			}
		}
		assert.Assert(t, n <= len(got) && (n > 0 || err != nil), i.Name)
	}
}
