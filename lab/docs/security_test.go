package docs

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestSecurity: each row of a table of SECURITY.md with a column Test names a test in it, and each
// test that the page names exists.
func TestSecurity(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	page := read("SECURITY.md")
	rows, inTable := 0, false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case strings.HasSuffix(line, "| Test |"):
			inTable = true
		case inTable && !strings.HasPrefix(line, "|-"):
			rows++
			cells := strings.Split(strings.Trim(line, "|"), "|")
			assert.Check(t, named.MatchString(cells[len(cells)-1]), "this row names no test: %s", line)
		}
	}
	assert.Check(t, rows > 40, "only %d rows", rows)
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		assert.Check(t, strings.Contains(tests(), "func "+m[1]+"("), "there is no %s", m[1])
	}
}

// TestSecurityNumbers: each number of SECURITY.md that is a default or a limit is that of the code.
func TestSecurityNumbers(t *testing.T) {
	page := read("SECURITY.md")
	for _, n := range []struct{ text, file, code string }{
		{"each 30 s; when there are 128,", "udat/ep_connect.go", "const acceptWait = 30 * time.Second"},
		{"when there are 128, each further one makes the oldest go, if that is 2 s", "udat/ep_connect.go",
			"maxUnconfirmed = 128"},
		{"if that is 2 s old", "udat/ep_connect.go", "unconfirmedAge = 2 * time.Second"},
		{"each 10 s; the oldest is given up", "udat/internal/tcpfabric/setup.go", "requestLimit = 10 * time.Second"},
		{"32 KiB of the peer", "udat/internal/tcpfabric/sock.go", "maxHandshake = 32 << 10"},
		{"256 MiB a device", "udat/internal/tcpfabric/buffer.go", "defaultBudget = 256 << 20"},
		{"its socket is closed after 6 s", "udat/internal/tcpfabric/link.go", "partLimit = time.Second"},
		{"its socket is closed after 6 s", "udat/internal/tcpfabric/link.go", "lingerLimit = 5 * time.Second"},
		{"140 s if it had stopped reading", "udat/internal/tcpfabric/device.go", "closedLimit = 130 * time.Second"},
		{"| 4096; of one source seven eighths |", "rdmanet/admission.go", "defaultBacklog = 4096"},
		{"15 s each", "rdmanet/admission.go", "helloTime = 15 * time.Second"},
		{"gives way after 1 s", "rdmanet/admission.go", "graceTime = time.Second"},
		{"when many wait after 0.2 s", "rdmanet/admission.go", "graceLeast = 200 * time.Millisecond"},
		{"within five intervals, 50 s", "rdmanet/config.go", "defaultKeepAlive = 10 * time.Second"},
		{"After `Close` it has 5 minutes", "rdmanet/config.go", "defaultLinger = 5 * time.Minute"},
		{"and 32 messages of 32 bytes", "rdmanet/hello.go", "defaultSlots = 32"},
		{"| 64; connections without a hello", "internal/perf/engine/layout.go", "DefaultMaxClients = 64"},
		{"copied whole, at most 512 bytes", "cmd/libgodat/shim.h", "#define GODAT_PRIVATE 512"},
		{"copied whole, at most 512 bytes", "udat/internal/tcpfabric/iwarp/setup.go", "maxSetupData = 512"},
		{"after 4096 more have been freed", "cmd/libgodat/handles.go", "const quarantine = 4096"},
		{"connects no queue pairs | 60 s |", "internal/perf/engine/link.go", "setupTime = 60 * time.Second"},
	} {
		assert.Check(t, strings.Contains(page, n.text), "SECURITY.md says no more %q", n.text)
		code := strings.Join(strings.Fields(read(n.file)), " ")
		assert.Check(t, strings.Contains(code, n.code), "%s has no %q, which SECURITY.md says: %s", n.file, n.code, n.text)
	}
}
