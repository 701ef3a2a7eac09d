//go:build linux

package udat_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// kernelKeeps allows for ids that Linux 6.1 keeps for minutes if the link went down when it sent a
// message of the id. See destroyTime in package cm.
func kernelKeeps(t *testing.T) {
	for until := time.Now().Add(10 * time.Second); len(leaktest.OfLibrary()) > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := leaktest.Excuse("cverbs.(*CMID).Close", "verbsfabric.(*device).Close.func1"); n > 0 {
		t.Logf("the kernel keeps ids: %d goroutines wait for it", n)
	}
}

// TestLinkDown: every connection of soft-RoCE, idle or not, breaks when the link goes down. The
// device connects again when the link is up.
func TestLinkDown(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		if os.Getenv("GODAT_VM") == "" || !strings.HasPrefix(dev, "rxe") {
			t.Skip("only the virtual machine's links go down, and soft-iWARP sees no link")
		}
		t.Cleanup(func() { kernelKeeps(t) })
		other := strings.TrimSuffix(dev, "0") + "1"
		const keep = "/proc/sys/net/ipv6/conf/all/keep_addr_on_down"
		assert.NilError(t, os.WriteFile(keep, []byte("1"), 0))
		defer os.WriteFile(keep, []byte("0"), 0)
		netdev := netdevOf(t, other)
		link := func(to string) {
			text, err := exec.Command("ip", "link", "set", netdev, to).CombinedOutput()
			assert.NilError(t, err, "%s", text)
		}
		t.Cleanup(func() { link("up") }) // the kernel ends no connection before
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
				if i%4 == 0 && strings.Contains(fmt.Sprint(ev.Err()), "LOC_QP_OP_ERR") {
					continue // its send failed before the event of the link came
				}
				assert.ErrorContains(t, ev.Err(), other+" has lost its link, address or route", "%d", i)
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

// netdevOf returns the network interface of a device.
func netdevOf(t *testing.T, dev string) string {
	t.Helper()
	links, err := exec.Command("rdma", "link").Output()
	assert.NilError(t, err)
	netdev := regexp.MustCompile(`(?m)^link ` + dev + `/.* netdev (\S+)`).FindStringSubmatch(string(links))
	assert.Assert(t, netdev != nil, "%s", links)
	return netdev[1]
}
