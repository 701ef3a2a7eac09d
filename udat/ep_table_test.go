package udat_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// table is the state machine of the specification: the effect of each cause in each state. "."
// means no effect, "x" INVALID_STATE, or INVALID_HANDLE for a freed endpoint, "=" a call that
// succeeds and changes nothing, "wait" a call that waits. In all other entries the part before the
// slash is the next state, and the part after the slash is the event.
const table = `
                UNCONN RESERV PASSIV TENTAT ACTIVE      COMPL      CONN       DISCPE     FLUSH  DISCON FREED
established     .      .      .      .      CONN/est    CONN/est   .          .          .      .      .
peer_rejected   .      .      .      .      FLUSH/prej  FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
rejected        .      .      .      .      FLUSH/nprej FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
unreachable     .      .      .      .      FLUSH/unr   FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
failed          .      .      .      .      FLUSH/nprej FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
timed_out       .      .      .      .      FLUSH/time  FLUSH/aerr .          .          .      .      .
peer_left       .      .      .      .      FLUSH/nprej FLUSH/aerr FLUSH/disc FLUSH/disc .      .      .
removed         .      .      .      .      FLUSH/nprej FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
broken          .      .      .      .      FLUSH/nprej FLUSH/aerr FLUSH/brk  FLUSH/brk  .      .      .
drained         .      .      .      .      .           .          .          FLUSH/disc .      .      .
flushed         .      .      .      .      .           .          .          .          DISCON .      .
unreserved      .      UNCONN .      .      .           .          .          .          .      .      .
requested       .      PASSIV .      .      .           .          .          .          .      .      .
offered         TENTAT .      .      .      .           .          .          .          .      .      .
withdrawn       .      .      UNCONN .      .           .          .          .          .      .      .
destroyed       FREED  FREED  FREED  FREED  FREED       FREED      FREED      FREED      FREED  FREED  .
connect         ACTIVE x      x      x      x           x          x          x          x      x      x
accept          COMPL  x      x      x      x           x          x          x          x      x      x
accept_own      x      x      COMPL  COMPL  x           x          x          x          x      x      x
reserve         RESERV x      x      x      x           x          x          x          x      x      x
abrupt          x      x      x      x      FLUSH/disc  FLUSH/disc FLUSH/disc FLUSH/disc =      =      x
graceful        x      x      x      x      FLUSH/disc  FLUSH/disc DISCPE     =          =      =      x
reset           =      x      x      x      x           x          x          x          wait   UNCONN x
free            FREED  x      x      x      FREED       FREED      FREED      FREED      FREED  FREED  x
`

// tableEvents are the events as the table abbreviates them.
var tableEvents = map[string]udat.EventNumber{
	"": 0, "est": udat.EventConnectionEstablished, "prej": udat.EventConnectionPeerRejected,
	"nprej": udat.EventConnectionNonPeerRejected,
	"aerr":  udat.EventConnectionAcceptError, "disc": udat.EventConnectionDisconnected, "brk": udat.EventConnectionBroken,
	"unr": udat.EventConnectionUnreachable, "time": udat.EventConnectionTimedOut,
}

// TestTransitionTable applies every cause in every state.
func TestTransitionTable(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(table), "\n")
	names := strings.Fields(rows[0])
	assert.Equal(t, len(names), len(udat.States))
	assert.Equal(t, len(names), udat.StatesOfTable())
	assert.Equal(t, len(rows)-1, len(udat.Causes))
	number := map[string]udat.EPState{}
	for i, name := range names {
		number[name] = udat.States[i]
	}
	for c, row := range rows[1:] {
		cells := strings.Fields(row)
		assert.Equal(t, strings.ReplaceAll(cells[0], "_", " "), udat.Causes[c])
		assert.Equal(t, len(cells), len(names)+1, row)
		for i, cell := range cells[1:] {
			s := udat.States[i]
			next, event, waits, err := udat.ApplyCause(s, c)
			wantNext, abbreviation, _ := strings.Cut(cell, "/")
			want, moves := number[wantNext]
			if !moves {
				want = s
			}
			wantEvent, known := tableEvents[abbreviation]
			assert.Assert(t, known, abbreviation)
			assert.Equal(t, next, want, "%s in %s", cells[0], names[i])
			assert.Equal(t, event, wantEvent, "%s in %s", cells[0], names[i])
			assert.Equal(t, waits, cell == "wait", "%s in %s", cells[0], names[i])
			switch {
			case cell != "x":
				assert.NilError(t, err, "%s in %s", cells[0], names[i])
			case names[i] == "FREED":
				refused(t, err, udat.InvalidHandle)
			default:
				refused(t, err, udat.InvalidState, subtypes[udat.VisibleState(s)])
			}
		}
	}
	for i, s := range udat.States {
		if names[i] == "FLUSH" {
			s = udat.EPDisconnected
		}
		assert.Equal(t, udat.VisibleState(udat.States[i]), s)
	}
	rule.Proves(t, "EP-CONNECT-02", "EP-DISC-08", "EP-RESET-04", "EP-FREE-01")
}
