package cverbs

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// qpNext lists the states that may follow a state. It omits RESET, which may follow every state,
// and ERR, which may follow every state but RESET.
var qpNext = map[QPState][]QPState{
	QPStateReset: {QPStateInit},
	QPStateInit:  {QPStateInit, QPStateRTR},
	QPStateRTR:   {QPStateRTS},
	QPStateRTS:   {QPStateRTS, QPStateSQD},
	QPStateSQD:   {QPStateRTS, QPStateSQD},
	QPStateSQE:   {QPStateRTS},
}

// Groups of attributes in qpNeedsOf.
const (
	needsStart     = QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags
	needsPath      = QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN
	needsRetries   = QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxRDAtomic
	needsResponder = QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer
)

// qpNeedsOf lists the attributes that each type of queue pair needs for its transitions to INIT,
// RTR and RTS.
var qpNeedsOf = map[QPType][3]QPAttrMask{
	QPTypeRC:        {needsStart, needsPath | needsResponder, QPAttrSQPSN | needsRetries},
	QPTypeUC:        {needsStart, needsPath, QPAttrSQPSN},
	QPTypeUD:        {QPAttrPKeyIndex | QPAttrPort | QPAttrQKey, 0, QPAttrSQPSN},
	QPTypeRawPacket: {QPAttrPort, 0, 0},
	QPTypeXRCSend:   {needsStart, needsPath, QPAttrSQPSN | needsRetries},
	QPTypeXRCRecv:   {needsStart, needsPath | needsResponder, QPAttrSQPSN | QPAttrTimeout},
}

// qpNeeds returns the attributes that a queue pair needs for the transition to INIT, RTR or RTS.
// For other states it returns QPAttrState. For an unknown type it returns the attributes of UC.
func qpNeeds(typ QPType, to QPState) QPAttrMask {
	if to < QPStateInit || to > QPStateRTS {
		return QPAttrState
	}
	needs, ok := qpNeedsOf[typ]
	if !ok {
		needs = qpNeedsOf[QPTypeUC]
	}
	return QPAttrState | needs[to-QPStateInit]
}

// modifyAdvice returns why a Modify may have failed in the given state of the queue pair, and what
// to do.
func modifyAdvice(typ QPType, from QPState, attr *QPAttr, mask QPAttrMask) string {
	to := attr.State
	switch {
	case mask&QPAttrState == 0:
		return fmt.Sprintf("in %v, attributes %v: without STATE a device takes few of them; change them in a transition",
			from, mask)
	case !qpGoes(from, to):
		s := fmt.Sprintf("in %v, which does not go to %v", from, to)
		if calls := qpCallsTo(from, qpBefore[to]); calls != "" {
			s += ": " + calls + " first"
		}
		return s
	case from < to && qpNeeds(typ, to)&^mask != 0:
		return fmt.Sprintf("from %v to %v: attributes %v are missing", from, to, qpNeeds(typ, to)&^mask)
	}
	return fmt.Sprintf("from %v to %v, attributes %v: one of them is not for this transition, or has a value that the "+
		"device does not take", from, to, mask)
}

func qpGoes(from, to QPState) bool {
	return to == QPStateReset || to == QPStateErr && from != QPStateReset || slices.Contains(qpNext[from], to)
}

// qpBefore maps a state to a state that may precede it.
var qpBefore = map[QPState]QPState{
	QPStateInit: QPStateReset, QPStateRTR: QPStateInit, QPStateRTS: QPStateRTR, QPStateSQD: QPStateRTS,
	QPStateErr: QPStateInit, QPStateSQE: QPStateRTS,
}

// qpCallsTo returns the calls that move a queue pair from one state to another. The target must be
// RTS or an earlier state. qpCallsTo returns "" if both states are the same.
func qpCallsTo(from, to QPState) string {
	up := []string{"ToReset", "ToInit", "ToRTR", "ToRTS"} // by state
	switch {
	case from == to:
		return ""
	case from > to: // from may also be SQD, SQE or ERR
		return strings.Join(append(up[:1:1], up[1:to+1]...), ", ")
	}
	return strings.Join(up[from+1:to+1], ", ")
}

// postAdvice returns the advice for a post that the queue pair's state does not allow: the state
// that the call needs, and the calls that move the queue pair to that state. byID is true if
// CMID.CreateQP created the queue pair; the id then moves the queue pair through its states.
func postAdvice(call string, num uint32, state QPState, byID bool) string {
	need, to := "RTS", QPStateRTS
	if call == "PostRecv" {
		need, to = "INIT or later", QPStateInit
	}
	do := qpCallsTo(state, to)
	if byID {
		do = "Connect or Accept of its id"
	}
	return fmt.Sprintf("%s on QP %d in %v: it needs %s: %s first", call, num, state, need, do)
}

// eceAdvice returns why a queue pair has refused a SetECE, and what to do.
func eceAdvice(num uint32, state QPState, e ECE, errno syscall.Errno) string {
	s := fmt.Sprintf("SetECE on QP %d in %v, VendorID %#x, Options %#x: ", num, state, e.VendorID, e.Options)
	switch {
	case errno == syscall.EOPNOTSUPP:
		return s + "the driver has no such options; connect without them"
	case state > QPStateInit:
		return s + "it needs RESET or INIT: " + qpCallsTo(state, QPStateInit) + " first"
	}
	return s + "QueryECE returns the options that the driver takes"
}

// rateAdvice returns why a queue pair has refused a SetRateLimit, and what to do.
func rateAdvice(num uint32, state QPState, l RateLimit, errno syscall.Errno) string {
	s := fmt.Sprintf("SetRateLimit on QP %d in %v, %+v: ", num, state, l)
	switch {
	case errno == syscall.EOPNOTSUPP || errno == syscall.ENOSYS:
		return s + "the device has no rate limits; limit the posts"
	case state != QPStateRTS:
		return s + "it needs RTS: " + qpCallsTo(state, QPStateRTS) + " first"
	}
	return s + "DeviceAttr.RateLimitMin and RateLimitMax are the device's limits"
}

// wqAdvice returns why a receive queue has refused a Modify, and what to do.
func wqAdvice(num uint32, from WQState, attr *WQAttr) string {
	s := fmt.Sprintf("Modify on WQ %d in %v", num, from)
	switch {
	case attr.Mask&WQAttrCurState != 0 && attr.CurState != from:
		return s + fmt.Sprintf(": CurState is %v; leave it out or correct it", attr.CurState)
	case attr.Mask&WQAttrState == 0:
		return s + fmt.Sprintf(", flags %#x of %#x: the device cannot change them; create the queue with them",
			uint32(attr.Flags), uint32(attr.FlagsMask))
	case attr.State == WQStateReady && from == WQStateErr:
		return s + " to RDY: it needs RESET: Modify to RESET first"
	case attr.State == WQStateErr && from == WQStateReset:
		return s + " to ERR: it needs RDY: Modify to RDY first"
	}
	return s + fmt.Sprintf(" to %v: the state goes from RESET to RDY, and from RDY to ERR or RESET", attr.State)
}
