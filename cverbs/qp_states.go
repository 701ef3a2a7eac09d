package cverbs

import (
	"fmt"
	"slices"
	"strings"
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

// modifyAdvice returns why a queue pair in the state from may have refused a Modify, and what to
// do.
func modifyAdvice(typ QPType, from QPState, attr *QPAttr, mask QPAttrMask) string {
	to := attr.State
	switch {
	case mask&QPAttrState == 0:
		return fmt.Sprintf("in %v, attributes %v", from, mask)
	case !qpGoes(from, to):
		s := fmt.Sprintf("in %v, which does not go to %v", from, to)
		if calls := qpCallsTo(from, qpBefore[to]); calls != "" {
			s += ": " + calls + " first"
		}
		return s
	case from < to && qpNeeds(typ, to)&^mask != 0:
		return fmt.Sprintf("from %v to %v: attributes %v are missing", from, to, qpNeeds(typ, to)&^mask)
	}
	return fmt.Sprintf("from %v to %v, attributes %v", from, to, mask)
}

func qpGoes(from, to QPState) bool {
	return to == QPStateReset || to == QPStateErr && from != QPStateReset || slices.Contains(qpNext[from], to)
}

// qpBefore maps a state to a state that may precede it.
var qpBefore = map[QPState]QPState{
	QPStateInit: QPStateReset, QPStateRTR: QPStateInit, QPStateRTS: QPStateRTR, QPStateSQD: QPStateRTS,
	QPStateErr: QPStateInit, QPStateSQE: QPStateRTS,
}

// qpCallsTo returns the calls that move a queue pair from a state to another, which is at most RTS.
// It returns "" if both are the same.
func qpCallsTo(from, to QPState) string {
	up := []string{"ToReset", "ToInit", "ToRTR", "ToRTS"} // by state
	switch {
	case from == to:
		return ""
	case from > to: // also SQD, SQE and ERR
		return strings.Join(append(up[:1:1], up[1:to+1]...), ", ")
	}
	return strings.Join(up[from+1:to+1], ", ")
}

// postAdvice returns the advice for a post that the queue pair's state does not allow: the state
// that call needs, and the calls that move the queue pair to that state. byID means that the queue
// pair's id moves it.
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
