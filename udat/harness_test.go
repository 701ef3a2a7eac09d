package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
)

// deviceEnv names a device, or several devices separated by commas. They must exist, and the suite
// runs on them in addition to the fabric inside this process.
const deviceEnv = "GODAT_TEST_DEVICE"

const tlsEnv = tlstest.Env

// patience limits every wait that must succeed.
var patience = leaktest.Patience

// devices returns the devices on which the suite runs: mem0 and those in GODAT_TEST_DEVICE. A short
// run with GODAT_TEST_DEVICE leaves mem0 out, because other runs cover mem0.
func devices() []string {
	list := []string{"mem0"}
	if onlyDevice() {
		list = nil
	}
	if env := os.Getenv(deviceEnv); env != "" {
		list = append(list, strings.Split(env, ",")...)
	}
	return list
}

func onlyDevice() bool { return testing.Short() && os.Getenv(deviceEnv) != "" }

// withoutDevice begins a long test that uses no device. A short run with GODAT_TEST_DEVICE skips
// the test.
func withoutDevice(t *testing.T) {
	if onlyDevice() {
		t.Skip("uses no device")
	}
}

// onEach runs a test on every device: on the one inside this process in a bubble of
// testing/synctest, whose time passes at once when everything waits, and on others in real time.
// The test fails if it leaks anything.
func onEach(t *testing.T, test func(t *testing.T, dev string)) {
	onDevices(t, devices(), synctest.Test, test)
}

// onEachOutside is onEach without bubbles, for tests that spin, that start processes, or that have
// subtests.
func onEachOutside(t *testing.T, test func(t *testing.T, dev string)) {
	onDevices(t, devices(), inRealTime, test)
}

// onMem is onEach for the device inside this process alone.
func onMem(t *testing.T, test func(t *testing.T, dev string)) {
	onDevices(t, []string{"mem0"}, synctest.Test, test)
}

// onMemOutside is onMem without bubbles.
func onMemOutside(t *testing.T, test func(t *testing.T, dev string)) {
	onDevices(t, []string{"mem0"}, inRealTime, test)
}

func inRealTime(t *testing.T, test func(*testing.T)) { test(t) }

// onDevices runs a test on devices, with in for the device inside this process.
func onDevices(t *testing.T, devices []string, in func(*testing.T, func(*testing.T)),
	test func(t *testing.T, dev string)) {
	for _, dev := range devices {
		t.Run(dev, func(t *testing.T) { on(t, dev, in, test) })
	}
}

// on runs a test on one device, with in for the device inside this process.
func on(t *testing.T, dev string, in func(*testing.T, func(*testing.T)), test func(t *testing.T, dev string)) {
	if dev != "mem0" {
		in = inRealTime
	}
	in(t, func(t *testing.T) {
		noLeaks(t)
		test(t, dev)
	})
}

// noLeaks fails the test if goroutines of the library are left when everything that it opened has
// been closed.
func noLeaks(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		var stacks []string
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if stacks = leaktest.OfLibrary(); len(stacks) == 0 {
				return
			}
		}
		t.Errorf("goroutines left behind:\n%s", strings.Join(stacks, "\n\n"))
	})
}

// open opens an adapter. When the test ends the adapter is closed, abruptly if necessary.
func open(t *testing.T, dev string, opts ...udat.Option) *udat.IA {
	t.Helper()
	if config := tlstest.Suite(dev); config != nil {
		opts = append([]udat.Option{udat.WithTLS(config)}, opts...)
	}
	ia, err := udat.Open(dev, opts...)
	assert.NilError(t, err)
	t.Cleanup(func() {
		if err := ia.Close(udat.CloseAbrupt); err != nil && !errors.Is(err, udat.ErrInvalidHandle) {
			t.Errorf("closing %s: %v", dev, err)
		}
	})
	return ia
}

// end is one end of a connection with all objects that it needs. Each stream has its own
// dispatcher, unless the setup says otherwise.
type end struct {
	t                       *testing.T
	ia                      *udat.IA
	pz                      *udat.PZ
	recv, request, conn, cr *udat.EVD
	ep                      *udat.EP
	mem                     *udat.LMR
	script                  *faultfabric.Script // of the setup
}

const endMemory = 64 << 10

type setup struct {
	attr    *udat.EPAttr
	qlen    int
	streams udat.EVDFlags // of a single dispatcher for all; 0: one each
	opts    []udat.Option
	unkept  bool                // the adapter does not poll its dispatchers: only notifications wake calls
	script  *faultfabric.Script // of faults that the device makes
}

// options are those of Open.
func (s *setup) options() []udat.Option {
	opts := slices.Clone(s.opts)
	if s.unkept {
		opts = append(opts, udat.WithoutPolling())
	}
	if s.script != nil {
		opts = append(opts, udat.Through(s.script.Wrap))
	}
	return opts
}

// newEnd makes one end; the endpoint is UNCONNECTED.
func newEnd(t *testing.T, dev string, s setup) *end {
	t.Helper()
	e := &end{t: t, ia: open(t, dev, s.options()...), script: s.script}
	if s.qlen == 0 {
		s.qlen = 128
	}
	var err error
	e.pz, err = e.ia.CreatePZ()
	assert.NilError(t, err)
	if s.streams != 0 {
		all := e.evd(s.qlen, s.streams)
		e.recv, e.request, e.conn, e.cr = all, all, all, all
	} else {
		e.recv, e.request = e.evd(s.qlen, udat.EVDDTO), e.evd(s.qlen, udat.EVDDTO|udat.EVDRMRBind)
		e.conn, e.cr = e.evd(s.qlen, udat.EVDConnection), e.evd(s.qlen, udat.EVDCR)
	}
	e.ep, err = e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, s.attr)
	assert.NilError(t, err)
	e.mem = e.lmr(endMemory, udat.PrivAll)
	return e
}

func (e *end) evd(qlen int, streams udat.EVDFlags) *udat.EVD {
	e.t.Helper()
	evd, err := e.ia.CreateEVD(qlen, streams, nil)
	assert.NilError(e.t, err)
	return evd
}

func (e *end) lmr(size int, priv udat.MemPriv) *udat.LMR {
	e.t.Helper()
	l, err := e.ia.AllocLMR(e.pz, size, priv)
	assert.NilError(e.t, err)
	return l
}

// pair returns two connected ends; the first is the active one.
func pair(t *testing.T, dev string, s setup) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, dev, s), newEnd(t, dev, s)
	connect(t, a, b)
	return a, b
}

// connect connects a to b.
func connect(t *testing.T, a, b *end) {
	t.Helper()
	psp := listen(t, b)
	step, up := "request", false
	defer func() {
		if !up { // the test fails here; the event of the other end may say why
			t.Logf("no connection, waiting for the %s: endpoints %v and %v", step, state(t, a.ep), state(t, b.ep))
			for i, evd := range []*udat.EVD{a.conn, b.conn} {
				for ev, err := evd.Dequeue(); err == nil; ev, err = evd.Dequeue() {
					t.Logf("end %d was told %s", i, describe(ev))
				}
			}
		}
	}()
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
	ev := expect(t, b.cr, udat.EventConnectionRequest)
	step = "acceptor"
	assert.NilError(t, ev.CR.Accept(b.ep, nil))
	expect(t, b.conn, udat.EventConnectionEstablished)
	step = "connector"
	expect(t, a.conn, udat.EventConnectionEstablished)
	assert.NilError(t, psp.Free())
	up = true
}

func listen(t *testing.T, e *end) *udat.PSP {
	t.Helper()
	_, psp, err := e.ia.CreatePSPAny(e.cr, udat.PSPConsumer)
	assert.NilError(t, err)
	return psp
}

// next waits for the next event.
func next(t *testing.T, evd *udat.EVD) udat.Event {
	t.Helper()
	ev, _, err := evd.Wait(patience, 1)
	assert.NilError(t, err)
	return ev
}

// expect waits for the next event, which must have the number.
func expect(t *testing.T, evd *udat.EVD, number udat.EventNumber) udat.Event {
	t.Helper()
	ev := next(t, evd)
	assert.Equal(t, ev.Number, number, "%s", describe(ev))
	if number == udat.EventConnectionBroken {
		assert.Assert(t, ev.Err() != nil, "a connection is broken for no reason")
	}
	return ev
}

// completion waits for the next event, which must be a successful completion with the cookie.
func completion(t *testing.T, evd *udat.EVD, cookie udat.Cookie) udat.Event {
	t.Helper()
	ev := expect(t, evd, udat.EventDTOCompletion)
	assert.Equal(t, ev.Status, udat.DTOSuccess, "%s", describe(ev))
	assert.Equal(t, ev.Cookie, cookie, "%s", describe(ev))
	return ev
}

// flushed waits for the next event, which must be a flushed completion with the cookie.
func flushed(t *testing.T, evd *udat.EVD, cookie udat.Cookie) udat.Event {
	t.Helper()
	ev := expect(t, evd, udat.EventDTOCompletion)
	assert.Equal(t, ev.Status, udat.DTOErrFlushed, "%s", describe(ev))
	assert.Equal(t, ev.Cookie, cookie, "%s", describe(ev))
	return ev
}

// empty checks that nothing is queued.
func empty(t *testing.T, evd *udat.EVD) {
	t.Helper()
	ev, err := evd.Dequeue()
	assert.ErrorIs(t, err, udat.ErrQueueEmpty, "%s", describe(ev))
}

func describe(ev udat.Event) string {
	return fmt.Sprintf("%v status %v op %v cookie %d length %d raw %d", ev.Number, ev.Status, ev.Operation, ev.Cookie,
		ev.Length, ev.RawStatus)
}

// iov returns one segment of the end's memory.
func (e *end) iov(off, n int) []udat.LMRTriplet { return []udat.LMRTriplet{e.mem.Triplet(off, n)} }

// put fills part of the end's memory with a pattern that depends on seed.
func (e *end) put(off, n int, seed byte) []byte {
	b := e.mem.Bytes()[off : off+n]
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return bytes.Clone(b)
}

func (e *end) get(off, n int) []byte { return e.mem.Bytes()[off : off+n] }

func state(t *testing.T, ep *udat.EP) udat.EPState {
	t.Helper()
	s, _, _, err := ep.GetStatus()
	assert.NilError(t, err)
	return s
}
