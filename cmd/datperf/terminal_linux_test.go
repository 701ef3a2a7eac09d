package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// newTerminal returns the two ends of a terminal of a given width: inside is the program's end,
// outside is the end that displays the text.
func newTerminal(t *testing.T, width uint16) (inside, outside *os.File) {
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { outside.Close() })
	fd := int(outside.Fd())
	assert.NilError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	assert.NilError(t, err)
	assert.NilError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}))
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { inside.Close() })
	return inside, outside
}

// progressOn returns what datperf writes to a terminal while it measures.
func progressOn(t *testing.T, width uint16, kind string) string {
	inside, outside := newTerminal(t, width)
	self, err := os.Executable()
	assert.NilError(t, err)
	cmd := exec.Command(self)
	cmd.Args = strings.Fields("datperf local --device mem0 -m bw -q 4 -d 16 -D 2 --poll event")
	cmd.Env = append(os.Environ(), "TERM="+kind)
	cmd.Stderr = inside
	assert.NilError(t, cmd.Run())
	inside.Close()
	var seen bytes.Buffer
	_, _ = seen.ReadFrom(outside) // an error at the end: no program has it open
	return seen.String()
}

// The progress line is shorter than the terminal is wide, because some terminals begin a new line
// after the last column. On a terminal that cannot erase a line there is no progress line.
func TestProgressLine(t *testing.T) {
	for _, width := range []uint16{40, 80} {
		lines := strings.Split(progressOn(t, width, "xterm"), eraseLine)
		assert.Assert(t, len(lines) > 1, "%q", lines)
		assert.Assert(t, strings.HasPrefix(lines[1], "[1/1] udat send bw, 64KiB"), "%q", lines[1])
		for _, line := range lines {
			assert.Assert(t, len(line) < int(width), "%q", line)
		}
	}
	assert.Equal(t, progressOn(t, 80, "dumb"), "")
}
