package main

import (
	"fmt"

	"github.com/godat/godat/udat"
)

// post is an entry of a ledger: something that has been posted and has not completed.
type post struct {
	op   udat.DTOOperation
	kind messageKind // only of a send
	seq  uint64      // number of a data message, or slot of a receive
	last bool        // the last request of a data message
}

// ledger records every post of one queue. Each post must complete once. If ordered is true, posts
// must complete in their order, and no post may succeed after one that has failed.
type ledger struct {
	name    string
	ordered bool
	iwarp   bool   // on iWARP a Send may succeed after an RDMA read that was flushed, because TCP has the Send already
	next    uint64 // serial number of the next post
	oldest  uint64 // serial number of the oldest entry, if ordered
	open    map[uint64]post
	failed  bool
}

func newLedger(name string, ordered bool) *ledger {
	return &ledger{name: name, ordered: ordered, open: map[uint64]post{}}
}

// add records a post before it is made, and returns its serial number.
func (l *ledger) add(p post) uint64 {
	l.open[l.next] = p
	l.next++
	return l.next - 1
}

// undo takes back the latest post, which was refused.
func (l *ledger) undo() {
	l.next--
	delete(l.open, l.next)
}

// complete removes a post that has completed, and checks the completion.
func (l *ledger) complete(serial uint64, status udat.DTOStatus) (post, error) {
	p, ok := l.open[serial]
	switch {
	case !ok && serial < l.next:
		return p, fmt.Errorf("%s: post %d completes twice", l.name, serial)
	case !ok:
		return p, fmt.Errorf("%s: completion of post %d, which was not made", l.name, serial)
	}
	delete(l.open, serial)
	if l.ordered {
		if serial != l.oldest {
			return p, fmt.Errorf("%s: post %d completes before post %d", l.name, serial, l.oldest)
		}
		l.oldest++
		if l.failed && status == udat.DTOSuccess {
			return p, fmt.Errorf("%s: post %d succeeds behind one that failed", l.name, serial)
		}
	}
	l.failed = l.failed || status != udat.DTOSuccess && !(l.iwarp && p.op == udat.DTORDMARead)
	return p, nil
}
