package engine

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// address is what a peer needs to connect to an end's queue pairs with --connect exchange. Without
// that option the connection manager finds these values.
type address struct {
	LID    uint16      `json:"lid,omitempty"` // InfiniBand only
	GID    string      `json:"gid"`           // 32 hexadecimal digits
	Global bool        `json:"global"`        // packets have a global routing header, with GIDs
	MTU    int         `json:"mtu_bytes"`
	QPs    [][2]uint32 `json:"qps"` // number and first packet sequence number of each queue pair
}

// Queue pair numbers and packet sequence numbers have 24 bits. Queue pairs 0 and 1 are for
// management, and number max24 is for multicast.
const (
	max24       = 1<<24 - 1
	firstFreeQP = 2
)

// ackTimeout is the default code of the acknowledgement timeout, as in perftest. It means 4.096 us
// << 14.
const ackTimeout = 14

// maxUnicastLID is the largest LID of a port. Larger LIDs are for multicast groups.
const maxUnicastLID = 0xBFFF

// meeting is the state of a link that connects by an exchange of addresses.
type meeting struct {
	l    *cverbsLink
	own  address
	sgid uint8 // index of this end's GID
	mtu  cverbs.MTU
}

// newMeeting returns a meeting with the address of the link's queue pairs. On Ethernet, packets
// have a global routing header, with GIDs. On InfiniBand they have one only if --gid-index is given
// at one end.
func newMeeting(l *cverbsLink, chosen *choice) (*meeting, error) {
	_, port := chosen.verbsPort()
	attr, err := l.ctx.QueryPort(port)
	if err != nil {
		return nil, err
	}
	index, given := chosen.gid.Get()
	m := &meeting{l: l, own: address{LID: attr.LID, Global: given || attr.LinkLayer == cverbs.LinkLayerEthernet,
		MTU: l.c.MTU.Or(attr.ActiveMTU.Bytes())}}
	gid, err := gidOf(l.ctx, port, index, given)
	switch {
	case err == nil:
		m.sgid, m.own.GID = uint8(gid.Index), hex.EncodeToString(gid.GID[:])
	case m.own.Global:
		return nil, fmt.Errorf("--connect exchange: %s has no GID: %w", chosen.Name, err)
	default:
		m.own.GID = hex.EncodeToString(make([]byte, len(gid.GID)))
	}
	if !m.own.Global && attr.LID == 0 {
		return nil, fmt.Errorf("--connect exchange: port %s has no LID: is there a subnet manager?", chosen.Name)
	}
	var ok bool
	if m.mtu, ok = cverbs.MTUOf(m.own.MTU); !ok {
		return nil, fmt.Errorf("--connect exchange: the MTU of %s is %d", chosen.Name, m.own.MTU)
	}
	for _, qp := range l.qps {
		m.own.QPs = append(m.own.QPs, [2]uint32{qp.Num(), rand.Uint32N(max24 + 1)})
	}
	return m, nil
}

// gidOf returns the entry of a port's GID table with the given index. If no index is given, it
// returns the best entry.
func gidOf(ctx *cverbs.Context, port uint8, index int, given bool) (cverbs.GIDEntry, error) {
	if !given {
		best, _, err := ctx.BestGID(port)
		return best, err
	}
	table, err := ctx.GIDTable()
	if err != nil {
		return cverbs.GIDEntry{}, err
	}
	for _, e := range table {
		if e.Port == port && e.Index == index {
			return e, nil
		}
	}
	return cverbs.GIDEntry{}, fmt.Errorf("--gid-index %d: there is no such GID", index)
}

// check returns the GID of the address. It returns an error if the address is not valid for a port
// with qps queue pairs. The argument global is true if packets have a global routing header.
func (a *address) check(qps int, global bool) (gid cverbs.GID, err error) {
	b, err := hex.DecodeString(a.GID)
	if err != nil || len(b) != len(gid) {
		return gid, fmt.Errorf("gid %.40q: must be %d hexadecimal digits", a.GID, 2*len(gid))
	}
	copy(gid[:], b)
	if _, ok := cverbs.MTUOf(a.MTU); !ok {
		return gid, fmt.Errorf("mtu_bytes %d: must be 256, 512, 1024, 2048 or 4096", a.MTU)
	}
	switch {
	case global && (gid.IsZero() || gid[0] == 0xFF):
		return gid, fmt.Errorf("gid %s: must be the GID of a port, neither zero nor multicast", a.GID)
	case !global && (a.LID == 0 || a.LID > maxUnicastLID):
		return gid, fmt.Errorf("lid %d: must be from 1 to %d", a.LID, maxUnicastLID)
	case len(a.QPs) != qps:
		return gid, fmt.Errorf("qps: %d queue pairs, must be %d", len(a.QPs), qps)
	}
	seen := make(map[uint32]bool, qps)
	for i, q := range a.QPs {
		switch {
		case q[0] < firstFreeQP || q[0] >= max24:
			return gid, fmt.Errorf("qps: number %d of queue pair %d must be from %d to %d", q[0], i, firstFreeQP, max24-1)
		case q[1] > max24:
			return gid, fmt.Errorf("qps: sequence number %d of queue pair %d must be at most %d", q[1], i, max24)
		case seen[q[0]]:
			return gid, fmt.Errorf("qps: number %d of queue pair %d is there twice", q[0], i)
		}
		seen[q[0]] = true
	}
	return gid, nil
}

// meet checks the peer's address and connects the queue pairs to those of the peer.
func (m *meeting) meet(peer *address) error {
	if peer == nil {
		return errors.New("--connect exchange: the peer did not send the address of its queue pairs")
	}
	global := m.own.Global || peer.Global
	gid, err := peer.check(len(m.l.qps), global)
	if err != nil {
		return fmt.Errorf("--connect exchange: the peer's %w", err)
	}
	theirs, _ := cverbs.MTUOf(peer.MTU)
	at := cverbs.AHAttr{DLID: peer.LID, IsGlobal: global}
	if global {
		at.DGID, at.SGIDIndex = gid, m.sgid
	}
	for i, q := range peer.QPs {
		to := direct{at: at, mtu: min(m.mtu, theirs), num: q[0], recvPSN: q[1], sendPSN: m.own.QPs[i][1],
			reads: uint8(m.l.c.ReadDepth)}
		if err := m.l.connectDirect(i, to); err != nil {
			return fmt.Errorf("--connect exchange: queue pair %d, to %06x at GID %v, LID %d: %w", i, q[0], gid, peer.LID, err)
		}
	}
	return nil
}

// direct contains the settings for connecting a queue pair without the connection manager.
type direct struct {
	at                    cverbs.AHAttr // without port, service level and traffic class, which connectDirect sets
	mtu                   cverbs.MTU
	num, recvPSN, sendPSN uint32
	reads                 uint8
}

// connectDirect moves a queue pair from INIT to RTS.
func (l *cverbsLink) connectDirect(i int, to direct) error {
	to.at.Port, to.at.SL = l.verbsPort, uint8(l.c.SL.Or(0))
	if to.at.IsGlobal {
		to.at.HopLimit, to.at.TrafficClass = 64, uint8(l.c.TOS.Or(0))
	}
	if l.c.Transport == result.UD {
		ah, err := l.pd.CreateAH(to.at)
		if ah, err = keep(l, ah, err); err != nil {
			return err
		}
		l.paths = append(l.paths, datagramPath{ah, to.num})
	}
	qp := l.qps[i]
	err := qp.ToRTR(cverbs.QPAttr{AH: to.at, PathMTU: to.mtu, DestQPNum: to.num, RQPSN: to.recvPSN,
		MaxDestRDAtomic: to.reads, MinRNRTimer: minRNRTimer})
	if err != nil {
		return err
	}
	return qp.ToRTS(cverbs.QPAttr{SQPSN: to.sendPSN, Timeout: uint8(l.c.Timeout.Or(ackTimeout)),
		RetryCnt: l.retry(), RNRRetry: l.rnr(), MaxRDAtomic: to.reads})
}
