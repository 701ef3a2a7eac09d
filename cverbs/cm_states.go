package cverbs

import (
	"fmt"
	"slices"
	"strings"
)

// cmStep is the latest step of an id: a call that moves it, or the event that Get has returned.
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
	cmEvents // the events are from here, in the order of CMEventType
)

// Steps that calls need.
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

// cmRule is what a call of an id needs and does.
type cmRule struct {
	verb  string
	to    cmStep   // the step that the call is, or cmCreateID if it is none
	after []cmStep // the steps after which the id allows the call; the advice names the first
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

// notBound is the advice for what an id allows only on a device.
const notBound = "the id is not bound to a device yet: BindAddr or ResolveAddr first"

// cmUp is the way of an id that connects.
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

// cmWay returns the calls that lead an id from a step to another. If there is no way they begin
// with a new id.
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
		at = cmCreateID // ResolveAddr is for both
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
