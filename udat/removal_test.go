//go:build linux

package udat_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestDeviceDeleted deletes the device while another process has closed it (even rounds) or is
// connected (odd rounds). In a connected process each open adapter of the device gets its own
// events. When the process has closed its adapters, the kernel no longer waits for it, and the
// process can use the device again when it is back.
func TestDeviceDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		if os.Getenv("GODAT_VM") == "" || dev == "mem0" {
			t.Skip("only the virtual machine's devices are removed")
		}
		netdev := netdevOf(t, dev)
		kind := dev[:3]
		pair(t, kind+"1", setup{}) // librdmacm keeps a context of the other device too

		_, out := process(t, "again", dev, 0)
		var before os.FileInfo
		for round := range 4 {
			before = folder(t, dev)
			says(t, out, fmt.Sprintf("ready %d", round))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			start := time.Now()
			text, err := exec.CommandContext(ctx, "rdma", "link", "delete", dev).CombinedOutput()
			cancel()
			assert.NilError(t, err, "%s after %v", text, time.Since(start))
			t.Logf("removed after %v", time.Since(start))
			text, err = exec.Command("rdma", "link", "add", dev, "type", kind, "netdev", netdev).CombinedOutput()
			assert.NilError(t, err, "%s", text)
		}
		untilBack(t, dev, before)
		pair(t, dev, setup{})
		says(t, out, "ready 4") // three rounds without an error
		rule.Proves(t, "IA-OPEN-09", "IA-OPEN-06")
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

// folder identifies a device in sysfs.
func folder(t *testing.T, dev string) os.FileInfo {
	t.Helper()
	info, err := os.Stat("/sys/class/infiniband/" + dev)
	assert.NilError(t, err)
	return info
}

// untilBack waits for a new device with the name, which has an address.
func untilBack(t *testing.T, dev string, before os.FileInfo) {
	t.Helper()
	for until := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
		now, err := os.Stat("/sys/class/infiniband/" + dev)
		if info, _ := listed(dev); err == nil && !os.SameFile(now, before) && info.Active && info.Addr != "" {
			return
		}
		assert.Assert(t, time.Now().Before(until), "%s is still the same", dev)
	}
}

// says waits until another process prints the line.
func says(t *testing.T, out *bufio.Scanner, want string) {
	t.Helper()
	for out.Scan() {
		if out.Text() == want {
			return
		}
		t.Log(out.Text())
	}
	t.Fatalf("the process ends before it says %q", want)
}

// roleAgain connects and closes everything, each time the device is back.
func roleAgain(t *testing.T, dev string) {
	for round := 0; ; round++ {
		before := folder(t, dev)
		ok := t.Run("", func(t *testing.T) {
			a, b := pair(t, dev, setup{})
			if round%2 == 0 {
				return
			}
			c := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncEVD(a.ia.AsyncEVD())}})
			listen(t, c) // the kernel does not notify a process that has neither a connection nor a listener
			for _, e := range []*end{a, b} {
				assert.NilError(t, e.ep.PostRecv(nil, 1, 0))
			}
			fmt.Printf("ready %d\n", round)
			told := map[udat.Handle]int{}
			for _, evd := range []*udat.EVD{a.ia.AsyncEVD(), a.ia.AsyncEVD(), b.ia.AsyncEVD()} {
				told[expect(t, evd, udat.EventAsyncIACatastrophic).Object]++
			}
			assert.DeepEqual(t, []int{told[a.ia], told[b.ia], told[c.ia]}, []int{1, 1, 1})
			for _, e := range []*end{a, b} {
				ev := next(t, e.conn) // the other end's disconnect may be faster
				assert.Assert(t, ev.Number == udat.EventConnectionBroken || ev.Number == udat.EventConnectionDisconnected,
					describe(ev))
				flushed(t, e.recv, 1)
			}
		})
		assert.Assert(t, ok)
		if round%2 == 0 {
			fmt.Printf("ready %d\n", round)
		}
		untilBack(t, dev, before)
	}
}
