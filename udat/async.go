package udat

import (
	"errors"
	"fmt"

	"github.com/godat/godat/udat/internal/fabric"
)

// asyncEvent queues the DAT event for an asynchronous event of the fabric, and breaks the
// connections that the fabric's event affects. It first waits until Open has ended.
func (ia *IA) asyncEvent(ev fabric.AsyncEvent) {
	<-ia.opened
	ia.mu.Lock()
	if ia.device == nil || ia.closed {
		ia.mu.Unlock()
		return
	}
	var object Handle = ia
	for _, kind := range []HandleType{HandleEVD, HandleEP, HandleSRQ, HandlePSP, HandleRSP} {
		for _, h := range ia.objects[kind] {
			if h.(interface {
				concerns(fabric.AsyncEvent) bool
			}).concerns(ev) {
				object = h
			}
		}
	}
	ia.mu.Unlock()
	switch o := object.(type) {
	case *EVD:
		o.hasOverrun()
		ia.async(nil, o.overflowEvent(errOverrun.Err))
		ia.breakEndpoints(errOverflow,
			func(ep *EP) bool { return ep.requests.source.evd == o || ep.recvs.source.evd == o })
	case *EP:
		switch ev.Kind {
		case fabric.AsyncQPFatal:
			why := errQueuePair
			if ev.Err != nil {
				why = fmt.Errorf("%w: %w", errQueuePair, ev.Err)
			}
			ia.async(nil, &Event{Number: EventAsyncEPBroken, EP: o, Object: o, Reason: ReasonEPTransferToError,
				conn: &connectionData{failure: why}})
			ia.breakEndpoints(why, func(ep *EP) bool { return ep == o })
		case fabric.AsyncQPSoftLimit, fabric.AsyncQPHardLimit:
			o.mu.Lock()
			o.tookMore(ev.Count)
			o.mu.Unlock()
		}
	case *SRQ:
		o.asyncEvent(ev.Kind)
	case *PSP:
		ia.starved(o, o.qual, ev.Err)
	case *RSP:
		ia.starved(o, o.qual, ev.Err)
	case *IA:
		switch ev.Kind {
		case fabric.AsyncDeviceFatal:
			ia.async(nil, &Event{Number: EventAsyncIACatastrophic, Object: ia, Reason: ReasonIACatastrophic,
				conn: &connectionData{failure: errDevice}})
			ia.breakEndpoints(errDevice, func(*EP) bool { return true })
		case fabric.AsyncPortError:
			ia.async(nil, &Event{Number: EventAsyncIACatastrophic, Object: ia, Reason: ReasonIAOther,
				conn: &connectionData{failure: errPort}})
		}
	}
}

// starved queues the event of a service point whose requests wait until resources are free.
func (ia *IA) starved(point Handle, qual ConnQual, cause error) {
	why := failAs("", fmt.Errorf("requests wait at service point %d: %w", qual, cause), SubResourceMemory)
	ia.async(nil, &Event{Number: EventAsyncProviderInternalError, Object: point, Reason: ReasonOther,
		conn: &connectionData{qual: qual, failure: why}})
}

var (
	errOverflow  = errors.New("a completion queue of the endpoint has overflowed")
	errQueuePair = errors.New("the device has reported a failure of the queue pair")
	errDevice    = errors.New("the device has failed")
	errPort      = errors.New("the device's port is down")
)

// breakEndpoints breaks the connections of the endpoints for which match returns true. The
// parameter cause is the failure that the endpoints report.
func (ia *IA) breakEndpoints(cause error, match func(*EP) bool) {
	ia.mu.Lock()
	var eps []*EP
	for _, h := range ia.objects[HandleEP] {
		eps = append(eps, h.(*EP))
	}
	ia.mu.Unlock()
	for _, ep := range eps {
		ep.mu.Lock()
		if match(ep) {
			ep.breakConnection(cause)
		}
		ep.mu.Unlock()
	}
}

func (ep *EP) concerns(ev fabric.AsyncEvent) bool {
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ev.QP != nil && ep.requests.qp == ev.QP
}
