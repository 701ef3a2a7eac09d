// Package soft supplies what the kernel's software devices lack: soft-iWARP (siw.go, ledger.go) and
// soft-RoCE (link.go, routes_linux.go). It decorates the objects of package verbsfabric, and uses
// them through the interfaces below.
package soft

import (
	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// owned is an object that a decorator may embed. Own returns the object itself, even if it is
// called on the decorator.
type owned interface{ Own() any }

// Device is a device with its verbs context.
type Device interface {
	fabric.Device
	owned
	Context() *cverbs.Context
}

// The objects that the decorators embed. After Decorate, an asynchronous event of the object refers
// to its decorator instead.
type (
	domain interface {
		fabric.PD
		owned
	}
	queue interface {
		fabric.CQ
		owned
		Decorate(decorator fabric.CQ)
		Verbs() *cverbs.CQ
		Channel() *cverbs.CompChannel
	}
	queuePair interface {
		fabric.QP
		owned
		Decorate(decorator fabric.QP)
		Verbs() *cverbs.QP
		// CanSend returns an error unless the queue pair is in RTS or ERR.
		CanSend() error
		// ReplaceToError sets the function that moves the queue pair to ERR.
		ReplaceToError(move func() error)
	}
	sharedQueue interface {
		fabric.SRQ
		owned
		Decorate(decorator fabric.SRQ)
	}
)
