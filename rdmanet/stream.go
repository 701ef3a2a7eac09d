package rdmanet

import "github.com/godat/godat/udat"

// incoming is the stream from the peer; Conn.mu guards it. freed <= read <= placed <= told.
type incoming struct {
	ring     ring     // the peer writes the stream into it
	placed   uint64   // bytes that the peer has written
	read     uint64   // bytes that the program has taken
	freed    uint64   // of those, bytes whose memory may be written again
	told     uint64   // position of the stream up to which the peer may write
	window   uint64   // bytes that may be placed and not freed
	most     uint64   // the limit of window: SetReadBuffer
	messages uint32   // messages that have come
	reposted uint32   // of those, how many have a new receive in their place
	toldAt   uint32   // reposted, as the peer knows it
	sentAt   uint64   // appended of the other direction, when the program last took data
	eof      bool     // the peer writes no more
	unwanted bool     // CloseRead was called
	lent     bool     // WriteTo hands out the memory from freed on
	taking   bool     // a call uses the data from read on: it stays where it is
	notices  []uint64 // that have come and wait for ReadNotice, oldest first
	noticed  uint64   // that the program has taken
	growth   growth
	larger   memory // growthOffered: the memory that the peer has been offered
}

// growth is how far the replacement of the first, small memory has come.
type growth uint8

const (
	growthNone    growth = iota
	growthBegun          // memory is being registered
	growthOffered        // the peer has been told, or will be
	growthOver           // the ring is as large as it will be
)

// outgoing is the stream to the peer; Conn.mu guards it. The first three count bytes of the local
// ring of what is to be sent: freed <= posted <= appended.
type outgoing struct {
	ring     ring
	appended uint64
	posted   uint64
	freed    uint64
	growth   growth

	position uint64 // bytes of the stream that have been written at the peer
	limit    uint64 // position up to which the peer allows it
	window   uint64 // bytes that the peer allows at a time
	next     remoteRing
	messages uint32     // messages that have been sent
	acked    uint32     // of those, how many have a new receive in their place
	requests uint64     // requests that have been posted
	done     uint64     // of those, how many have completed
	silent   int        // requests since the last that makes a completion
	silentBy int        // and their bytes
	owed     uint32     // control messages to be sent, by kind
	words    []word     // atomics in flight, oldest first
	pending  []inFlight // operations in flight, oldest first
	closeAt  uint64     // requests, once that of Close has been posted
	fin      bool       // CloseWrite was called
	imm      bool       // writes carry immediate data
	accepted bool       // the peer has connected
	lent     int        // WriteRegions and Notifys, which wait on writable for credit
	notices  uint64     // that have been sent
	noticed  uint64     // of those, how many the peer's program has taken
	held     bool       // the dispatcher counts data that is held back
	stalls   uint64     // times that Write has waited for room

	iov [2][1]udat.LMRTriplet // of ops
	ops [2]udat.Op            // of the post under way: here, because it would escape to the heap
}

// The layout of Conn.own: the first, small memory of what is to be sent, a place for each control
// message in flight, a place for each receive. All of it is one page.
const (
	firstSend = 2 << 10
	firstRecv = minRing
	requests  = 31 // requests that a connection may have in flight; udat needs one more entry
	ownSize   = firstSend + (requests+1+defaultSlots)*controlSize
)

func sendPlace(seq uint64) int { return firstSend + int(seq%requests)*controlSize }

func recvPlace(slot int) int { return firstSend + (requests+1+slot)*controlSize }

// inFlight are operations that have been posted together. Conn.mu is held.
type inFlight interface {
	lastPosted() uint64 // outgoing.requests after them
	end(err error)      // they are over
}

// word is an atomic in flight: the old value comes to the place of the request's control message.
type word struct {
	seq uint64
	old *uint64
}

const wordSize = 8
