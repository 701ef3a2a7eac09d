package cverbs

import (
	"fmt"
	"slices"
	"strings"
)

// cmStep is the latest step of an id: a call that changes the id's state, or an event of the id
// that Get has returned.
type cmStep uint32

const (
	cmCreateID cmStep = iota
	cmBindAddr
	cmListen
	cmResolveAddr
	cmResolveRoute
	cmConnect
	cmAccept
	cmReject
	cmEstablish
	cmDisconnect
	cmEvents // the first event; all events follow in the order of CMEventType
)

// The events after which some calls are allowed.
const (
	cmAddrResolved    = cmEvents + cmStep(CMEventAddrResolved)
	cmAddrError       = cmEvents + cmStep(CMEventAddrError)
	cmRouteResolved   = cmEvents + cmStep(CMEventRouteResolved)
	cmRouteError      = cmEvents + cmStep(CMEventRouteError)
	cmConnectRequest  = cmEvents + cmStep(CMEventConnectRequest)
	cmConnectResponse = cmEvents + cmStep(CMEventConnectResponse)
	cmEstablished     = cmEvents + cmStep(CMEventEstablished)
	cmDisconnected    = cmEvents + cmStep(CMEventDisconnected)
)

var cmStepNames = [cmEvents]string{"CreateID", "BindAddr", "Listen", "ResolveAddr", "ResolveRoute", "Connect",
	"Accept", "Reject", "Establish", "Disconnect"}

func (s cmStep) String() string {
	if s < cmEvents {
		return cmStepNames[s]
	}
	return CMEventType(s - cmEvents).String()
}

// cmRule describes a call on an id: the steps after which the id allows the call, and the step to
// which the call leads.
type cmRule struct {
	verb  string
	to    cmStep   // the id's step after the call; cmCreateID: the call does not change the step
	after []cmStep // the id allows the call after these steps; advice names the first of them
}

var cmRules = map[string]cmRule{
	"BindAddr":     {"rdma_bind_addr", cmBindAddr, []cmStep{cmCreateID}},
	"Listen":       {"rdma_listen", cmListen, []cmStep{cmBindAddr}},
	"ResolveAddr":  {"rdma_resolve_addr", cmResolveAddr, []cmStep{cmCreateID, cmBindAddr, cmAddrError}},
	"ResolveRoute": {"rdma_resolve_route", cmResolveRoute, []cmStep{cmAddrResolved, cmRouteError}},
	"Connect":      {"rdma_connect", cmConnect, []cmStep{cmRouteResolved}},
	"Establish":    {"rdma_establish", cmEstablish, []cmStep{cmConnectResponse}},
	"Accept":       {"rdma_accept", cmAccept, []cmStep{cmConnectRequest}},
	"Reject":       {"rdma_reject", cmReject, []cmStep{cmConnectRequest}},
	"RejectECE":    {"rdma_reject_ece", cmReject, []cmStep{cmConnectRequest}},
	"Disconnect":   {"rdma_disconnect", cmDisconnect, []cmStep{cmEstablished, cmEstablish, cmAccept, cmDisconnected}},
	"Notify":       {"rdma_notify", cmCreateID, []cmStep{cmAccept, cmConnect, cmConnectResponse}},
	"InitQPAttr": {"rdma_init_qp_attr", cmCreateID,
		[]cmStep{cmAddrResolved, cmRouteResolved, cmConnectRequest, cmConnectResponse}},
	"SetTOS":        {"rdma_set_option", cmCreateID, []cmStep{cmCreateID, cmBindAddr}},
	"SetReuseAddr":  {"rdma_set_option", cmCreateID, []cmStep{cmCreateID, cmBindAddr}},
	"SetAFOnly":     {"rdma_set_option", cmCreateID, []cmStep{cmCreateID, cmBindAddr}},
	"SetAckTimeout": {"rdma_set_option", cmCreateID, []cmStep{cmCreateID, cmBindAddr}},
}

// notBound is the advice for calls that need an id that is bound to a device.
const notBound = "the id is not bound to a device yet: BindAddr or ResolveAddr first"

// cmUp lists the steps of an id that connects, in order.
var cmUp = []cmStep{cmCreateID, cmResolveAddr, cmAddrResolved, cmResolveRoute, cmRouteResolved, cmConnect,
	cmConnectResponse}

// cmAdvice returns why an id refuses a call after a step, and what to do. It returns "" if the step
// is not the reason.
func cmAdvice(call string, at cmStep) string {
	after := cmRules[call].after
	if slices.Contains(after, at) {
		return ""
	}
	return fmt.Sprintf("%s on an id after %v: it needs %v: %s", call, at, after[0], cmWay(at, after[0]))
}

// cmWay returns a text that names the calls by which an id gets from the first step to the second.
// If no calls do that, the text names the calls by which a new id gets to the second step.
func cmWay(at, to cmStep) string {
	switch to {
	case cmCreateID:
		return "a new id"
	case cmConnectRequest:
		return "take the id of that event of a listener"
	case cmAccept, cmEstablished:
		return "Connect, or Accept a request, first"
	case cmBindAddr:
		if at == cmCreateID {
			return "BindAddr first"
		}
		return "BindAddr on a new id"
	}
	if at == cmBindAddr {
		at = cmCreateID // ResolveAddr is allowed after both steps
	}
	from, end := slices.Index(cmUp, at), slices.Index(cmUp, to)
	on := "first"
	if from < 0 || from >= end {
		from, on = 0, "on a new id"
	}
	var calls []string
	for _, s := range cmUp[from+1 : end] {
		if s < cmEvents {
			calls = append(calls, s.String())
		}
	}
	if calls == nil {
		return "EventChannel.Get takes it first"
	}
	return strings.Join(calls, ", ") + " " + on
}
