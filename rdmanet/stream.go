package rdmanet

import "github.com/godat/godat/udat"

// incoming is the stream from the peer; Conn.mu guards it. The positions satisfy freed <= read <=
// placed <= told.
type incoming struct {
	ring     ring   // the peer writes the stream into it
	placed   uint64 // bytes that the peer has written
	read     uint64 // bytes that the program has read
	freed    uint64 // bytes whose memory the peer may overwrite
	told     uint64 // position of the stream up to which the peer may write
	window   uint64 // largest number of bytes that are placed and not freed
	most     uint64 // largest value of window, set by SetReadBuffer
	messages uint32 // messages that have come
	reposted uint32 // receives of these messages that have been reposted
	toldAt   uint32 // the value of reposted that was last reported to the peer
	sentAt   uint64 // outgoing.appended when the program last read data
	waste    uint64 // bytes discarded after Close since the peer has last read something
	eof      bool   // the peer will write no more
	unwanted bool   // CloseRead was called
	lent     bool   // WriteTo uses the memory that begins with byte freed
	taking   bool   // a call uses the data that begins with byte read, which must stay valid
	growth   growth
	larger   memory // growthOffered: the memory that the peer has been offered
}

// growth is the state of the replacement of the first, small memory.
type growth uint8

const (
	growthNone    growth = iota
	growthBegun          // the larger memory is being registered
	growthOffered        // the larger memory has been offered to the peer, or will be
	growthOver           // the ring will not grow any more
)

// outgoing is the stream to the peer; Conn.mu guards it. The positions in the send ring satisfy
// freed <= posted <= appended.
type outgoing struct {
	ring     ring
	appended uint64
	posted   uint64
	freed    uint64
	growth   growth

	position uint64 // bytes of the stream that have been posted
	limit    uint64 // position up to which the peer allows writing
	window   uint64 // the peer's incoming.window
	next     remoteRing
	piece    uint64     // largest number of bytes of one write
	messages uint32     // messages that have been sent
	acked    uint32     // receives of these messages that the peer has reposted
	requests uint64     // requests that have been posted
	done     uint64     // requests that have completed
	silent   int        // requests since the last one with a completion
	silentBy int        // bytes written by these requests
	owed     uint32     // control messages to be sent, by kind
	words    []word     // atomics in flight, oldest first
	pending  []inFlight // operations in flight, oldest first
	closeAt  uint64     // value of requests after Close's message; 0: not posted
	fin      bool       // CloseWrite was called
	imm      bool       // writes carry immediate data
	accepted bool       // this end has accepted the connection
	lent     int        // number of calls of WriteRegion, which wait on writable for credit
	held     bool       // data is held back, which the dispatcher counts as blocked
	stalls   uint64     // number of times that Write has waited for room

	iov [2][1]udat.LMRTriplet // data segments of ops
	ops [2]udat.Op            // operations of the current post; kept here because they would escape to the heap
}

// The layout of Conn.own: the first send ring, a buffer for each control message in flight, and a
// buffer for each receive. All of it is one page.
const (
	firstSend = 2 << 10
	firstRecv = minRing
	requests  = 31 // largest number of requests in flight; udat needs one more entry
	ownSize   = firstSend + (requests+1+defaultSlots)*controlSize
)

func sendPlace(seq uint64) int { return firstSend + int(seq%requests)*controlSize }

func recvPlace(slot int) int { return firstSend + (requests+1+slot)*controlSize }

// inFlight is a set of operations that were posted together. Its methods are called with Conn.mu
// held.
type inFlight interface {
	lastPosted() uint64 // the value of outgoing.requests after the last operation was posted
	end(err error)      // called when the operations have ended
}

// word is an atomic operation in flight. The device writes the old value of the word to the control
// message buffer of the request whose number is seq.
type word struct {
	seq uint64
	old *uint64
}

const wordSize = 8
