//go:build linux

package udat_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestLinkDown: every connection of soft-RoCE, idle or not, breaks when the link goes down. The
// device connects again when the link is up.
func TestLinkDown(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		if os.Getenv("GODAT_VM") == "" || !strings.HasPrefix(dev, "rxe") {
			t.Skip("only the virtual machine's links go down, and soft-iWARP sees no link")
		}
		other := strings.TrimSuffix(dev, "0") + "1"
		const keep = "/proc/sys/net/ipv6/conf/all/keep_addr_on_down"
		assert.NilError(t, os.WriteFile(keep, []byte("1"), 0))
		defer os.WriteFile(keep, []byte("0"), 0)
		netdev := netdevOf(t, other)
		link := func(to string) {
			text, err := exec.Command("ip", "link", "set", netdev, to).CombinedOutput()
			assert.NilError(t, err, "%s", text)
		}
		for range 2 {
			var ends []*end
			for range 8 {
				a, b := pair(t, other, setup{})
				ends = append(ends, a, b)
			}
			link("down")
			for i, e := range ends {
				if i%4 == 0 {
					e.ep.PostSend(e.iov(0, 8), 1, 0) // it may be too late
				}
				ev := expect(t, e.conn, udat.EventConnectionBroken)
				assert.ErrorContains(t, ev.Err(), other+" has lost its link, address or route")
			}
			link("up")
			for _, e := range ends {
				assert.NilError(t, e.ep.Reset())
			}
		}
		pair(t, other, setup{})

		t.Run("closed", func(t *testing.T) {
			a, _ := pair(t, other, setup{})
			link("down")
			expect(t, a.conn, udat.EventConnectionBroken)
		}) // its end closes both adapters
		link("up")
		pair(t, other, setup{})
	})
}
