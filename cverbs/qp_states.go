package cverbs

import (
	"fmt"
	"slices"
	"strings"
)

// qpNext are the states that a state goes to, besides RESET and, from all but RESET, ERR.
var qpNext = map[QPState][]QPState{
	QPStateReset: {QPStateInit},
	QPStateInit:  {QPStateInit, QPStateRTR},
	QPStateRTR:   {QPStateRTS},
	QPStateRTS:   {QPStateRTS, QPStateSQD},
	QPStateSQD:   {QPStateRTS, QPStateSQD},
	QPStateSQE:   {QPStateRTS},
}

// Attributes that queue pairs need.
const (
	needsStart     = QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags
	needsPath      = QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN
	needsRetries   = QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxRDAtomic
	needsResponder = QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer
)

// qpNeedsOf are the attributes that types of queue pairs need on their way to INIT, RTR and RTS.
var qpNeedsOf = map[QPType][3]QPAttrMask{
	QPTypeRC:        {needsStart, needsPath | needsResponder, QPAttrSQPSN | needsRetries},
	QPTypeUC:        {needsStart, needsPath, QPAttrSQPSN},
	QPTypeUD:        {QPAttrPKeyIndex | QPAttrPort | QPAttrQKey, 0, QPAttrSQPSN},
	QPTypeRawPacket: {QPAttrPort, 0, 0},
	QPTypeXRCSend:   {needsStart, needsPath, QPAttrSQPSN | needsRetries},
	QPTypeXRCRecv:   {needsStart, needsPath | needsResponder, QPAttrSQPSN | QPAttrTimeout},
}

// qpNeeds returns the attributes that a queue pair needs on its way up to INIT, RTR or RTS; for
// other states the state alone, and for unknown types what UC needs.
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

// modifyAdvice says why a queue pair in the state from may have refused a Modify, and what to do.
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

// qpBefore are the states before each on the way up.
var qpBefore = map[QPState]QPState{
	QPStateInit: QPStateReset, QPStateRTR: QPStateInit, QPStateRTS: QPStateRTR, QPStateSQD: QPStateRTS,
	QPStateErr: QPStateInit, QPStateSQE: QPStateRTS,
}

// qpCallsTo returns the calls that take a queue pair to a state up to RTS, "" if it is there.
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

// postAdvice says what a queue pair in a state lacks for a call that posts, and what brings it
// there; byID: its id does that.
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
