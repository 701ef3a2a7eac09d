//go:build linux

package udat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// The peer of these tests is dtest, a program of OpenFabrics DAPL (Debian's dapl2-utils): a uDAPL
// application in C, over the C library. What it exchanges: its provider over TCP; private data; the
// places of the buffers, big-endian; a burst of writes each way; reads each way; a ping-pong of
// messages.
const (
	dtestSide      = "15828" // TCP
	dtestQual      = udat.ConnQual(45248)
	dtestSize      = 4096
	dtestBurst     = 10
	dtestReads     = 4
	dtestPings     = 100
	dtestImmediate = 0x7777
	dtestRMR       = 16            // bytes of a message that tells the place of a buffer
	dtestMessages  = 3 * dtestSize // where these messages are in the end's memory
)

// TestDtestServer is the active side of a connection to a uDAPL program in C, TestDtestClient the
// passive one.
func TestDtestServer(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) { dtest(t, dev, true, false) })
}
func TestDtestClient(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) { dtest(t, dev, false, false) })
}

// TestDtestStream is dtest -w in both roles: the last write of each end's burst has immediate data.
func TestDtestStream(t *testing.T) {
	for _, active := range []bool{true, false} {
		onEach(t, func(t *testing.T, dev string) { dtest(t, dev, active, true) })
	}
}

// dtestProgram starts the peer on the end's device.
func dtestProgram(t *testing.T, e *end, name string, args ...string) (out *bytes.Buffer, ended chan error) {
	t.Helper()
	netdevs, err := filepath.Glob("/sys/class/infiniband/" + e.ia.Device().Attr().Info.Name + "/ports/1/gid_attrs/ndevs/0")
	assert.NilError(t, err)
	if len(netdevs) != 1 {
		t.Skip("C programs reach the device by its network device, and it has none")
	}
	netdev, err := os.ReadFile(netdevs[0])
	if errors.Is(err, syscall.EINVAL) {
		t.Skip("the kernel does not say which network device this is") // for dtest's configuration
	}
	assert.NilError(t, err)
	conf := filepath.Join(t.TempDir(), "dat.conf")
	line := fmt.Sprintf("godat u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 %q \"\"\n",
		strings.TrimSpace(string(netdev))+" 0")
	assert.NilError(t, os.WriteFile(conf, []byte(line), 0o644))
	cmd := exec.Command(name, append([]string{"-P", "godat"}, args...)...)
	cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+conf)
	out, ended = new(bytes.Buffer), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = out, out
	assert.NilError(t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			select {
			case <-ended:
				t.Logf("%s said:\n%s", name, out)
			case <-time.After(patience):
			}
		}
	})
	return out, ended
}

func dtest(t *testing.T, dev string, active, stream bool) {
	e := dtestEnd(t, dev, "dtest")
	// The buffer that the peer writes and reads, the one that goes out, those of the ping-pong, the
	// messages.
	const rbuf, sbuf, pings, messages = 0, dtestSize, 2 * dtestSize, dtestMessages

	var out *bytes.Buffer
	var ended chan error
	private := make([]byte, 48)
	for i := range private {
		private[i] = byte(i + 1)
	}
	args := []string{"-b", strconv.Itoa(dtestSize), "-B", strconv.Itoa(dtestBurst)}
	if stream {
		if !e.ia.Device().Attr().WriteImmediate {
			t.Skip("no immediate data here")
		}
		args = append(args, "-w")
	}
	if active {
		out, ended = dtestProgram(t, e, "dtest", args...)
		dtestConnect(t, e, dtestQual, private, increased(private))
	} else {
		side, err := net.Listen("tcp4", ":"+dtestSide)
		assert.NilError(t, err)
		defer side.Close()
		out, ended = dtestProgram(t, e, "dtest", append(args, "-h", e.ia.Addr().String())...)
		dtestAccept(t, e, side, dtestQual, private, increased(private))
	}

	tell := func(cookie udat.Cookie) { dtestTell(t, e, cookie, e.mem.RMRTriplet(rbuf, dtestSize)) }
	var place udat.RMRTriplet
	hear := func(cookie udat.Cookie) { place = dtestHear(t, e, cookie, dtestSize) }
	agree := func(cookie udat.Cookie) { // the client speaks first
		if active {
			tell(cookie)
		}
		hear(cookie)
		if !active {
			tell(cookie)
		}
	}
	copy(e.get(sbuf, dtestSize), "written by godat\x00")
	tell(0)
	hear(0)

	for i := range dtestBurst {
		if stream && i == dtestBurst-1 {
			assert.NilError(t, e.ep.PostRDMAWriteImmediate(e.iov(sbuf, dtestSize), udat.Cookie(i), place, dtestImmediate,
				udat.CompletionDefault))
			continue
		}
		assert.NilError(t, e.ep.PostRDMAWrite(e.iov(sbuf, dtestSize), udat.Cookie(i), place, udat.CompletionDefault))
	}
	for i := range dtestBurst {
		completion(t, e.request, udat.Cookie(i))
	}
	if stream {
		ev := completion(t, e.recv, 1)
		assert.Assert(t, ev.Operation == udat.DTOReceiveWriteImm && ev.Immediate == dtestImmediate, "%s 0x%x", describe(ev),
			ev.Immediate)
		agree(2)
		dtestEnds(t, e, active, out, ended)
		return
	}
	agree(1)
	peer := map[bool]string{true: "server", false: "client"}[active]
	assert.Equal(t, cString(e.get(rbuf, dtestSize)), peer+" RDMA write data...")

	read := func(cookie udat.Cookie) {
		assert.NilError(t, e.ep.PostRDMARead(e.iov(sbuf, dtestSize), cookie, place, udat.CompletionDefault))
		completion(t, e.request, cookie)
	}
	for i := range dtestReads {
		read(udat.Cookie(i))
	}
	tell(2)
	hear(2)
	read(dtestReads) // once more: only now has the peer surely filled it
	assert.Equal(t, cString(e.get(sbuf, dtestSize)), peer+" RDMA read data...")

	mine, theirs := byte(0x55), byte(0xaa)
	if !active {
		mine, theirs = theirs, mine
	}
	e.get(sbuf, 1)[0] = mine
	for i := range dtestPings {
		assert.NilError(t, e.ep.PostRecv(e.iov(pings, dtestSize), udat.Cookie(i), udat.CompletionDefault))
	}
	for i := range dtestPings {
		if active {
			assert.NilError(t, e.ep.PostSend(e.iov(sbuf, dtestSize), udat.Cookie(i), udat.CompletionSuppress))
		}
		assert.Equal(t, completion(t, e.recv, udat.Cookie(i)).Length, uint64(dtestSize))
		assert.Equal(t, e.get(pings, 1)[0], theirs)
		if !active {
			assert.NilError(t, e.ep.PostSend(e.iov(sbuf, dtestSize), udat.Cookie(i), udat.CompletionSuppress))
		}
	}
	dtestEnds(t, e, active, out, ended)
	assert.Assert(t, strings.Contains(out.String(), "RDMA write buffer contains: written by godat"), "%s", out)
}

// dtestEnd makes this library's end, with the receives of three messages.
func dtestEnd(t *testing.T, dev, program string) *end {
	t.Helper()
	crossProcess(t, dev)
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s here (ci/deps.sh vm installs it)", program)
	}
	e := newEnd(t, dev, setup{qlen: 256, attr: &udat.EPAttr{MaxRecvDTOs: dtestPings + 3, MaxRequestDTOs: dtestPings}})
	if !e.ia.Addr().Is4() {
		t.Skipf("%s speaks IPv4 only", program)
	}
	dtestRecvs(t, e)
	return e
}

func dtestRecvs(t *testing.T, e *end) {
	t.Helper()
	for i := range 3 {
		assert.NilError(t, e.ep.PostRecv(e.iov(dtestMessages+i*dtestRMR, dtestRMR), udat.Cookie(i), udat.CompletionDefault))
	}
}

// dtestTell tells the peer where a buffer of this end is.
func dtestTell(t *testing.T, e *end, cookie udat.Cookie, mine udat.RMRTriplet) {
	t.Helper()
	const at = dtestMessages + 3*dtestRMR
	b := e.get(at, dtestRMR)
	binary.BigEndian.PutUint64(b, mine.TargetAddress)
	binary.BigEndian.PutUint32(b[8:], uint32(mine.SegmentLength))
	binary.BigEndian.PutUint32(b[12:], mine.RMRContext)
	assert.NilError(t, e.ep.PostSend(e.iov(at, dtestRMR), cookie, udat.CompletionDefault))
	completion(t, e.request, cookie)
}

// dtestHear receives where the peer's buffer is, by the receive with the cookie.
func dtestHear(t *testing.T, e *end, cookie udat.Cookie, size uint64) udat.RMRTriplet {
	t.Helper()
	assert.Equal(t, completion(t, e.recv, cookie).Length, uint64(dtestRMR))
	b := e.get(dtestMessages+int(cookie)*dtestRMR, dtestRMR)
	place := udat.RMRTriplet{TargetAddress: binary.BigEndian.Uint64(b),
		SegmentLength: uint64(binary.BigEndian.Uint32(b[8:])), RMRContext: binary.BigEndian.Uint32(b[12:])}
	assert.Equal(t, place.SegmentLength, size)
	return place
}

// increased is what dtest answers to private data: each byte is one more.
func increased(private []byte) []byte {
	answer := make([]byte, len(private))
	for i := range private {
		answer[i] = private[i] + 1
	}
	return answer
}

// dtestEnds disconnects, or waits for the program to do so, and sees that it is content.
func dtestEnds(t *testing.T, e *end, disconnect bool, out *bytes.Buffer, ended chan error) {
	t.Helper()
	if disconnect {
		assert.NilError(t, e.ep.Disconnect(udat.CloseGraceful))
	}
	expect(t, e.conn, udat.EventConnectionDisconnected)

	select {
	case err := <-ended:
		assert.NilError(t, err, "%s", out)
	case <-time.After(patience):
		t.Fatal("the program did not end")
	}
	assert.Assert(t, strings.Contains(out.String(), "PASSED"), "%s", out)
}

// dtestConnect connects to a program that serves, which listens a while after it has told its
// provider.
func dtestConnect(t *testing.T, e *end, qual udat.ConnQual, private, answer []byte) {
	t.Helper()
	var side net.Conn
	eventually(t, func() bool {
		var err error
		side, err = net.Dial("tcp4", net.JoinHostPort(e.ia.Addr().String(), dtestSide))
		return err == nil
	}, "the program's TCP port")
	defer side.Close()
	var hello [128]byte
	_, err := io.ReadFull(side, hello[:])
	assert.NilError(t, err)
	fields := strings.Split(cString(hello[:]), ":")
	assert.Equal(t, len(fields), 5, "%q", hello)
	native, err := strconv.ParseUint(fields[3], 16, 32)
	assert.NilError(t, err)
	addr := netip.AddrFrom4([4]byte{byte(native), byte(native >> 8), byte(native >> 16), byte(native >> 24)})
	assert.Equal(t, addr, e.ia.Addr())
	_, err = side.Write(hello[:]) // dtestx asks for the client's address, which is the same; dtest does not read on
	assert.NilError(t, err)
	for until := time.Now().Add(patience); ; {
		assert.NilError(t, e.ep.Connect(addr, qual, patience, private, udat.QoSBestEffort, udat.ConnectDefault))
		ev := next(t, e.conn)
		if ev.Number == udat.EventConnectionEstablished {
			assert.DeepEqual(t, ev.PrivateData()[:len(answer)], answer)
			return
		}
		assert.Equal(t, ev.Number, udat.EventConnectionNonPeerRejected, "%s", describe(ev))
		assert.Assert(t, time.Now().Before(until), "the program does not listen")
		assert.NilError(t, e.ep.Reset())
		for i := range 3 { // what was posted before has been flushed
			flushed(t, e.recv, udat.Cookie(i))
		}
		dtestRecvs(t, e)
		time.Sleep(20 * time.Millisecond)
	}
}

// dtestAccept serves a program that is a client.
func dtestAccept(t *testing.T, e *end, side net.Listener, qual udat.ConnQual, private, answer []byte) {
	t.Helper()
	psp, err := e.ia.CreatePSP(qual, e.cr, udat.PSPConsumer)
	assert.NilError(t, err)
	conn, err := side.Accept()
	assert.NilError(t, err)
	defer conn.Close()
	var hello [128]byte
	copy(hello[:], fmt.Sprintf("0000:00000000:00000000:%08x:godat", binary.LittleEndian.Uint32(e.ia.Addr().AsSlice())))
	_, err = conn.Write(hello[:])
	assert.NilError(t, err)
	cr := expect(t, e.cr, udat.EventConnectionRequest).CR
	param, err := cr.Query()
	assert.NilError(t, err)
	assert.DeepEqual(t, param.PrivateData[:len(private)], private)
	assert.NilError(t, cr.Accept(e.ep, answer))
	expect(t, e.conn, udat.EventConnectionEstablished)
	assert.NilError(t, psp.Free())
}

// cString is the text up to the first 0.
func cString(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}
