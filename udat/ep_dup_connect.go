package udat

import "time"

// DupConnect connects the endpoint to the service point that dup, a CONNECTED endpoint of this adapter, is connected to:
// the same address and qualifier. An endpoint that is CONNECTED by an accept knows no service point of its peer's: the outcome
// is then NON_PEER_REJECTED, as nobody listens where its peer called from. States, events, timeout, private data and
// quality of service are those of Connect; dup in another state is InvalidState.
//
// Implements: dat_ep_dup_connect.
func (ep *EP) DupConnect(dup *EP, timeout time.Duration, privateData []byte, qos QoS) error {
	const op = "ep_dup_connect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := dup.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := sameIA(op, ep.obj.ia, &dup.obj); err != nil {
		return err
	}
	switch {
	case timeout <= 0:
		return fail(op, InvalidParameter, SubArg3, "timeout is %v, must be positive", timeout)
	case qos != QoSBestEffort:
		return fail(op, ModelNotSupported, SubNone, "qos is %d, only QoSBestEffort is supported", qos)
	}
	dup.mu.Lock()
	s := dup.getState()
	_, remote := dup.addresses()
	dup.mu.Unlock()
	if s != EPConnected {
		return dup.wrongState(op, s)
	}
	return ep.connect(op, SubArg4, remote, timeout, privateData)
}
