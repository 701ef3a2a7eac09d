package tcpfabric

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// A call of short adds ErrResources to an error that means that the process or host has run out of
// files or memory. It adds ErrAddrInvalid to an error that means that the host cannot use the
// address. It returns any other error as it is.
func short(err error) error {
	switch {
	case isOf(err, syscall.EMFILE):
		return fmt.Errorf("%w: the open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached: %w",
			fabric.ErrResources, err)
	case isOf(err, syscall.ENFILE):
		return fmt.Errorf("%w: the open-file limit of the host (fs.file-max of sysctl) is reached: %w",
			fabric.ErrResources, err)
	case isOf(err, syscall.ENOMEM, syscall.ENOBUFS):
		return fmt.Errorf("%w: %w", fabric.ErrResources, err)
	case isOf(err, syscall.EINVAL, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT):
		return fmt.Errorf("%w: %w", fabric.ErrAddrInvalid, err)
	}
	return err
}

// kindOf returns the kind of event for a stream that has ended with err, while this end had
// inFlight requests in flight. It returns EventUnreachable if the peer can no longer be reached. A
// peer resets its stream, or ends it within a message, if it refuses a request, is disconnected
// abruptly or dies: that is EventFailed if it may have hit a request. So is a stream that somebody
// has cut off below TLS. For any other err it returns EventDisconnected.
func kindOf(err error, own bool, inFlight int) fabric.ConnEventKind {
	within := errors.Is(err, errMidFrame)
	switch {
	case isOf(err, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN):
		return fabric.EventUnreachable
	case errors.Is(err, errCut),
		inFlight > 0 && (within || isOf(err, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE)), within && !own:
		return fabric.EventFailed
	}
	return fabric.EventDisconnected
}

// isOf reports whether err is one of the errors of the list, or Windows' error for one of them.
func isOf(err error, list ...syscall.Errno) bool {
	return slices.ContainsFunc(list, func(of syscall.Errno) bool {
		native, ok := winsock[of]
		return errors.Is(err, of) || ok && errors.Is(err, native)
	})
}

var errMidFrame = errors.New("the peer's stream ends within a message")

var errCut = fmt.Errorf("the peer's stream ends before TLS has ended: %w", io.ErrUnexpectedEOF)

// statusOf returns the status of a request that the peer has refused. The parameter f is the reason
// in the peer's terminate message.
func statusOf(f iwarp.Fault) fabric.Status {
	const layerAndType = 0xFF00
	switch {
	case f == iwarp.FaultNoBuffer:
		return fabric.StatusRNRExceeded
	case f == iwarp.FaultStream, f == iwarp.FaultGlobal, f == iwarp.FaultLocal, f == iwarp.FaultDDP:
		return fabric.StatusRemoteOp
	case f&layerAndType == iwarp.FaultKey&layerAndType, f&layerAndType == iwarp.FaultTaggedKey&layerAndType:
		return fabric.StatusRemoteAccess
	case f.Layer() <= 1:
		return fabric.StatusRemoteInvReq
	}
	return fabric.StatusFatal // MPA: the stream itself is broken
}

// faultOf returns the reason for the terminate message that refuses a request of the peer. The
// parameter op is the opcode of the request, and st is the status that the request gets at the
// peer. faultOf is the inverse of statusOf.
func faultOf(op iwarp.Opcode, st fabric.Status) iwarp.Fault {
	switch st {
	case fabric.StatusRemoteAccess:
		return iwarp.FaultAccess
	case fabric.StatusRNRExceeded:
		return iwarp.FaultNoBuffer
	case fabric.StatusRemoteInvReq:
		if op.Queue() == iwarp.QueueSend && !op.Tagged() {
			return iwarp.FaultTooLong
		}
		return iwarp.FaultOperation
	}
	return iwarp.FaultStream
}

// denials has two faults for each reason why memory cannot be accessed: one for a request of a read
// or an atomic, and one for a tagged message.
var denials = [...][2]iwarp.Fault{
	softnic.Granted:     {fine, fine},
	softnic.NoKey:       {iwarp.FaultKey, iwarp.FaultTaggedKey},
	softnic.OtherDomain: {iwarp.FaultKeyStream, iwarp.FaultTaggedStream},
	softnic.OutOfBounds: {iwarp.FaultBounds, iwarp.FaultTaggedBounds},
	softnic.NoRight:     {iwarp.FaultAccess, iwarp.FaultAccess},
}

const (
	ofRequests = iota
	ofTagged
)
