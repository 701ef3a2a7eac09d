package udat_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestNewcomer provokes the errors of docs/errors.md that this package returns: each text contains
// the quotation of the page, and advice.
func TestNewcomer(t *testing.T) {
	withoutDevice(t)
	page, err := os.ReadFile("../docs/errors.md")
	assert.NilError(t, err)
	told := func(quote, advice string, err error) {
		t.Helper()
		assert.Check(t, strings.Contains(string(page), "| `"+quote+"` |"), "docs/errors.md has no row for %q", quote)
		assert.Check(t, err != nil && strings.Contains(err.Error(), quote) && strings.Contains(err.Error(), advice),
			"%v: should contain %q and %q", err, quote, advice)
	}
	_, err = udat.Open("nosuch0")
	told("no adapter is named", "there are: ", err)
	if why := udat.WhyNoDevices(); why != nil && strings.Contains(why.Error(), "has no RDMA device") {
		told("this host has no RDMA device", "rdma link add", why)
	}

	ia, err := udat.Open("mem0")
	assert.NilError(t, err)
	defer ia.Close(udat.CloseAbrupt)
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	events, err := ia.CreateEVD(8, udat.EVDDTO|udat.EVDConnection, nil)
	assert.NilError(t, err)
	ep, err := ia.CreateEP(pz, events, events, events, nil)
	assert.NilError(t, err)
	assert.NilError(t, ep.Connect(ia.Addr(), 9, patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
	ev, _, err := events.Wait(time.Minute, 1)
	assert.NilError(t, err)
	assert.Equal(t, ev.Number, udat.EventConnectionNonPeerRejected)
	told("nobody listens", "in this process", ev.Err())
	told("mem0 reaches no other", "", ev.Err())

	merged, err := ia.CreateEVD(8, udat.EVDDTO|udat.EVDConnection, nil)
	assert.NilError(t, err)
	_, err = ia.CreateEP(pz, merged, merged, merged, &udat.EPAttr{RecvCompletionFlags: udat.CompletionSolicitedWait})
	told("need a dispatcher that takes completions only", "create another dispatcher", err)

	reader, writer := pair(t, "mem0", setup{attr: &udat.EPAttr{MaxRequestDTOs: 4}})
	told("the connection allows no RDMA reads", "the peer's MaxRDMAReadIn is 0: set it in the EPAttr of its endpoint",
		reader.ep.PostRDMARead(reader.iov(0, 8), 1, writer.mem.RMRTriplet(0, 8), 0))
}
