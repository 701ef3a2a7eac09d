package rdmanet

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// unanswered returns a service point of mem0, and its requests, which nobody answers.
func unanswered(t *testing.T) (at netip.AddrPort, requests *udat.EVD) {
	t.Helper()
	ia, err := udat.Open(memDevice)
	assert.NilError(t, err)
	t.Cleanup(func() { ia.Close(udat.CloseAbrupt) })
	requests, err = ia.CreateEVD(8, udat.EVDCR, nil)
	assert.NilError(t, err)
	port, _, err := ia.CreatePSPAny(requests, udat.PSPConsumer)
	assert.NilError(t, err)
	return netip.AddrPortFrom(ia.Addr(), uint16(port)), requests
}

// TestDialBusyThenSilent dials a listener that is busy at first and then does not answer. The error
// has both reasons. If the listener never answers, the error has one reason.
func TestDialBusyThenSilent(t *testing.T) {
	for _, busy := range []int{0, 2} {
		to, requests := unanswered(t)
		go func() {
			for range busy {
				if ev, _, err := requests.Wait(hostilePatience, 1); err == nil {
					ev.CR.Reject(encodeRefusal(refusedBusy, "wait a moment"))
				}
			}
		}()
		d := Dialer{Device: memDevice, Timeout: 2 * time.Second}
		_, err := d.Dial(t.Context(), Network, to.String())
		var timeout net.Error
		assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
		assert.Equal(t, strings.Contains(err.Error(), "wait a moment"), busy > 0, "%v", err)
		assert.Equal(t, strings.Contains(err.Error(), "tried until"), busy > 0, "%v", err)
		assert.Equal(t, errors.Is(err, syscall.ECONNREFUSED), busy > 0, "%v", err)
	}
}

// TestDialGivenUp dials a listener that accepts and gives up the connection before its first
// message. The listener counts as busy, and Dial tries again. The second time the listener refuses,
// and Dial returns its reason.
func TestDialGivenUp(t *testing.T) {
	ia, err := udat.Open(memDevice)
	assert.NilError(t, err)
	defer ia.Close(udat.CloseAbrupt)
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	evd, err := ia.CreateEVD(8, udat.EVDCR|udat.EVDDTO|udat.EVDConnection, nil)
	assert.NilError(t, err)
	ep, err := ia.CreateEP(pz, evd, evd, evd, nil)
	assert.NilError(t, err)
	mem, err := ia.AllocLMR(pz, 4096, udat.PrivAll)
	assert.NilError(t, err)
	port, _, err := ia.CreatePSPAny(evd, udat.PSPConsumer)
	assert.NilError(t, err)
	request := func() *udat.CR {
		for {
			ev, _, err := evd.Wait(hostilePatience, 1)
			if err != nil || ev.CR != nil {
				return ev.CR
			}
			if ev.Number == udat.EventConnectionEstablished {
				ep.Disconnect(udat.CloseAbrupt)
			}
		}
	}
	served := make(chan error, 1)
	go func() {
		m := mem.RMRTriplet(0, 4096)
		h := hello{slots: 32, ring: remoteRing{m.TargetAddress, m.RMRContext, 4096}}
		served <- errors.Join(request().Accept(ep, h.encode()), request().Reject(encodeRefusal(refusedFor, "enough")))
	}()
	d := Dialer{Device: memDevice, Timeout: hostilePatience}
	_, err = d.Dial(t.Context(), Network, netip.AddrPortFrom(ia.Addr(), uint16(port)).String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.ErrorContains(t, err, "enough")
	assert.NilError(t, <-served)
}
