// Package soft makes up for what the kernel's software devices lack: soft-iWARP (siw.go, ledger.go)
// and soft-RoCE (link.go, routes_linux.go). It decorates the objects of package verbsfabric, which
// it knows by the interfaces below.
package soft

import (
	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// owned is an object that its decorators embed. Own returns the object itself.
type owned interface{ Own() any }

// Device is a device with its verbs context.
type Device interface {
	fabric.Device
	owned
	Context() *cverbs.Context
}

// What the decorators embed. Decorate makes asynchronous events name outer instead of the object.
type (
	domain interface {
		fabric.PD
		owned
	}
	queue interface {
		fabric.CQ
		owned
		Decorate(outer fabric.CQ)
		Verbs() *cverbs.CQ
		Channel() *cverbs.CompChannel
	}
	queuePair interface {
		fabric.QP
		owned
		Decorate(outer fabric.QP)
		Verbs() *cverbs.QP
		// CanSend returns an error unless it is in RTS or ERR.
		CanSend() error
		// ReplaceToError makes the queue pair call move whenever it shall go to ERR.
		ReplaceToError(move func() error)
	}
	sharedQueue interface {
		fabric.SRQ
		owned
		Decorate(outer fabric.SRQ)
	}
)
