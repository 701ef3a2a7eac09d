package tcpfabric

import "github.com/godat/godat/udat/internal/fabric"

// mark records what must happen until a request that has been sent is done.
type mark struct {
	end    uint64        // the count at which the request is done: see doneBy
	before numbers       // the counts before the request, to send it again
	seq    uint32        // the number of the request, from 1; a mark with another number is of an older request
	status fabric.Status // the result, if by is byStatus
	by     doneBy
	units  uint8 // how many requests the peer counts for this one
}

// doneBy is the kind of progress that completes a request.
type doneBy uint8

const (
	byStatus  doneBy = iota // the request is done
	byAck                   // when the peer has acknowledged mark.end requests
	byAnswer                // when the peer has answered mark.end reads and atomics
	byWriting               // when mark.end bytes have been written to the socket
)

// numbers are counts of what has been sent, to which each request adds.
type numbers struct {
	count uint64 // requests, as the peer counts them
	reads uint64 // reads and atomics
	sends uint32 // messages of the send queue
	asks  uint32 // messages of the request queue
}

func (m *mark) fail(st fabric.Status) { m.by, m.status = byStatus, st }

func (m *mark) done(acked, answered, written uint64) (bool, fabric.Status) {
	switch m.by {
	case byAck:
		return acked >= m.end, fabric.StatusSuccess
	case byAnswer:
		return answered >= m.end, fabric.StatusSuccess
	case byWriting:
		return written >= m.end, fabric.StatusSuccess
	}
	return true, m.status
}
