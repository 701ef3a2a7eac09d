//go:build linux

package udat_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// crossProcess skips the test on a device that reaches only this process.
func crossProcess(t *testing.T, dev string) {
	t.Helper()
	ia := open(t, dev)
	if kind := ia.Device().Attr().Info.Fabric; kind == "mem" {
		t.Skipf("the %s fabric is inside one process", kind)
	}
}

// needKernel skips the test on a device that is not in the kernel, because such a device locks no
// memory.
func needKernel(t *testing.T, dev string) {
	t.Helper()
	if _, err := os.Stat("/sys/class/infiniband/" + dev); err != nil {
		t.Skip("the kernel does not know the device")
	}
}

// process starts this program as a second process with a role, as another user if uid is not 0.
func process(t *testing.T, role, dev string, uid uint32) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	assert.NilError(t, err)
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestRole$", "-test.timeout=5m") // the directory may not be readable
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), roleEnv+"="+role+" "+dev)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	stdin, err := cmd.StdinPipe() // closed when this process ends; then the other ends too
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// TestRole is the second process; in the first it does nothing.
func TestRole(t *testing.T) {
	role, dev, ok := strings.Cut(os.Getenv(roleEnv), " ")
	if !ok {
		return
	}
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(3)
	}()
	switch role {
	case "sink":
		roleSink(t, dev)
	case "deaf":
		roleDeaf(t, dev)
	case "writer":
		roleWriter(t, dev)
	case "memlock":
		roleMemlock(t, dev)
	case "idle":
		roleIdle(t, dev)
	case "starved":
		roleStarved(t, dev)
	}
}

// roleSink serves one connection, and takes messages and writes for ever.
func roleSink(t *testing.T, dev string) {
	e := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRecvDTOs: 64}})
	psp := listen(t, e)
	for i := range 64 {
		assert.NilError(t, e.ep.PostRecv(e.iov(i*512, 512), 0, 0))
	}
	remote := e.mem.RMRTriplet(endMemory/2, endMemory/2)
	fmt.Printf("at %v %d %d %d %d\n", e.ia.Addr(), psp.Qual(), remote.RMRContext, remote.TargetAddress,
		remote.SegmentLength)
	assert.NilError(t, expect(t, e.cr, udat.EventConnectionRequest).CR.Accept(e.ep, nil))
	for i := 0; ; i++ {
		completion(t, e.recv, 0)
		assert.NilError(t, e.ep.PostRecv(e.iov(i%64*512, 512), 0, 0))
	}
}

// roleDeaf receives one connection request and does not answer.
func roleDeaf(t *testing.T, dev string) {
	e := newEnd(t, dev, setup{})
	fmt.Printf("at %v %d\n", e.ia.Addr(), listen(t, e).Qual())
	expect(t, e.cr, udat.EventConnectionRequest)
	fmt.Println("asked")
	select {}
}

// TestPeerKilledBeforeAnswer kills the peer's process while a request waits there: the event must
// not say that the peer's Consumer has rejected, whatever the peer's kernel sends.
func TestPeerKilledBeforeAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		crossProcess(t, dev)
		a := newEnd(t, dev, setup{})
		for range 2 {
			cmd, out := process(t, "deaf", dev, 0)
			asked := false
			for !asked && out.Scan() {
				var host string
				var qual udat.ConnQual
				if n, _ := fmt.Sscanf(out.Text(), "at %s %d", &host, &qual); n == 2 {
					assert.NilError(t, a.ep.Connect(netip.MustParseAddr(host), qual, patience, []byte("x"), 0, 0))
				}
				asked = out.Text() == "asked"
			}
			assert.Assert(t, asked, "the peer has not been asked")
			empty(t, a.conn)
			assert.NilError(t, cmd.Process.Kill())
			ev := expect(t, a.conn, udat.EventConnectionNonPeerRejected)
			assert.Equal(t, len(ev.PrivateData()), 0)
			assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
			assert.NilError(t, a.ep.Reset())
		}
		connect(t, a, newEnd(t, dev, setup{}))
		rule.Proves(t, "EPST-14", "GAP-45")
	})
}

// TestPeerKilled kills the peer's process in the middle of transfers: within a time limit all work
// of the survivor is flushed, and one event comes.
func TestPeerKilled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		crossProcess(t, dev)
		for _, also := range []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond} {
			cmd, out := process(t, "sink", dev, 0)
			var host string
			var qual udat.ConnQual
			var remote udat.RMRTriplet
			for out.Scan() {
				if n, _ := fmt.Sscanf(out.Text(), "at %s %d %d %d %d", &host, &qual, &remote.RMRContext, &remote.TargetAddress,
					&remote.SegmentLength); n == 5 {
					break
				}
			}
			assert.Assert(t, qual != 0, "the peer says nothing")
			a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 64}, qlen: 512})
			assert.NilError(t, a.ep.Connect(netip.MustParseAddr(host), qual, patience, nil, 0, 0))
			expect(t, a.conn, udat.EventConnectionEstablished)
			for i := range 16 {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			}
			posted, done := udat.Cookie(0), udat.Cookie(0)
			post := func() {
				var err error
				if posted%2 == 0 {
					err = a.ep.PostSend(a.iov(0, 512), posted, 0)
				} else {
					err = a.ep.PostRDMAWrite(a.iov(0, 20000), posted, remote, 0)
				}
				assert.NilError(t, err)
				posted++
			}
			for posted < 60 {
				post()
			}
			kill := time.AfterFunc(100*time.Millisecond+also, func() { cmd.Process.Signal(syscall.SIGKILL) })
			failed := false
			for begin := time.Now(); done < posted; done++ {
				ev := expect(t, a.request, udat.EventDTOCompletion)
				assert.Equal(t, ev.Cookie, done)
				if ev.Status == udat.DTOSuccess {
					assert.Assert(t, !failed, "a success after a failure")
					post()
				} else {
					failed = true
				}
				assert.Assert(t, time.Since(begin) < patience, "the transfers go on")
			}
			kill.Stop()
			ev := next(t, a.conn)
			assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken,
				describe(ev))
			t.Logf("%d operations, then %v", done, ev.Number)
			for i := range 16 {
				flushed(t, a.recv, udat.Cookie(i))
			}
			empty(t, a.conn)
			empty(t, a.request)
			assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
			assert.NilError(t, a.ep.Reset())
			connect(t, a, newEnd(t, dev, setup{}))
		}
		rule.Proves(t, "EPST-33", "EPST-34", "EPST-40", "EPST-43", "GAP-51")
	})
}

const (
	whereEnv     = "GODAT_TEST_WHERE" // the address, the Conn Qual and the memory that a writer writes into
	writerMemory = 8 << 20
)

// roleWriter connects to an address and writes into the memory there for ever.
func roleWriter(t *testing.T, dev string) {
	var host string
	var qual udat.ConnQual
	var remote udat.RMRTriplet
	_, err := fmt.Sscan(os.Getenv(whereEnv), &host, &qual, &remote.RMRContext, &remote.TargetAddress,
		&remote.SegmentLength)
	assert.NilError(t, err)
	e := newEnd(t, dev, setup{})
	big := e.lmr(writerMemory, udat.PrivAll)
	big.Bytes()[writerMemory-1] = 1
	assert.NilError(t, e.ep.Connect(netip.MustParseAddr(host), qual, patience, nil, 0, 0))
	expect(t, e.conn, udat.EventConnectionEstablished)
	for {
		assert.NilError(t, e.ep.PostRDMAWrite([]udat.LMRTriplet{big.Triplet(0, writerMemory)}, 0, remote, 0))
		completion(t, e.request, 0)
	}
}

// TestWriterKilled kills a peer in the middle of its writes: the memory can be freed, and the
// endpoint can be used again.
func TestWriterKilled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		crossProcess(t, dev)
		e := newEnd(t, dev, setup{})
		psp := listen(t, e)
		for range 3 {
			big := e.lmr(writerMemory, udat.PrivAll)
			remote := big.RMRTriplet(0, writerMemory)
			t.Setenv(whereEnv, fmt.Sprintln(e.ia.Addr(), psp.Qual(), remote.RMRContext, remote.TargetAddress,
				remote.SegmentLength))
			cmd, _ := process(t, "writer", dev, 0)
			assert.NilError(t, expect(t, e.cr, udat.EventConnectionRequest).CR.Accept(e.ep, nil))
			expect(t, e.conn, udat.EventConnectionEstablished)
			for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				last, err := big.LoadUint32(writerMemory - 4)
				assert.NilError(t, err)
				if last != 0 {
					break
				}
				assert.Assert(t, time.Now().Before(until), "the peer does not write")
			}
			assert.NilError(t, cmd.Process.Signal(syscall.SIGKILL)) // not reaped until the test ends
			ev := next(t, e.conn)
			assert.Assert(t, ev.Number == udat.EventConnectionDisconnected || ev.Number == udat.EventConnectionBroken,
				describe(ev))
			assert.NilError(t, e.ep.Reset())
			assert.NilError(t, big.Free())
		}
		connect(t, e, newEnd(t, dev, setup{}))
		rule.Proves(t, "EP-RESET-05", "GAP-51")
	})
}

// nobody is an ordinary user.
const nobody = 65534

const memlock = 64 << 10

// roleMemlock registers more memory than the user may lock.
func roleMemlock(t *testing.T, dev string) {
	assert.NilError(t, syscall.Setrlimit(8 /* RLIMIT_MEMLOCK */, &syscall.Rlimit{Cur: memlock, Max: memlock}))
	ia, err := udat.Open(dev)
	assert.NilError(t, err)
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	small, err := ia.AllocLMR(pz, memlock/4, udat.PrivAll)
	assert.NilError(t, err)
	_, err = ia.AllocLMR(pz, 1<<20, udat.PrivAll)
	refused(t, err, udat.InsufficientResources, udat.SubResourceMemoryRegion)
	mistakes(t, ia, pz)
	fmt.Printf("says %v\n", err)
	assert.NilError(t, small.Free())
	assert.NilError(t, pz.Free())
	assert.NilError(t, ia.Close(udat.CloseGraceful))
}

// TestMemlock: if an ordinary user cannot lock the memory, the error names the limit.
func TestMemlock(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		crossProcess(t, dev)
		needKernel(t, dev)
		if os.Getuid() != 0 {
			t.Skip("only root can become another user")
		}
		cmd, out := process(t, "memlock", dev, nobody)
		text := ""
		for out.Scan() {
			if said, ok := strings.CutPrefix(out.Text(), "says "); ok {
				text = said
			} else {
				t.Log(out.Text())
			}
		}
		assert.NilError(t, cmd.Wait())
		t.Log(text)
		assert.Assert(t, strings.Contains(text, "limit") && (strings.Contains(text, "65536") ||
			strings.Contains(text, "64 K")), "%s", text)
		rule.Proves(t, "GAP-72", "GAP-95", "LMR-CREATE-09")
	})
}
