package udat

import (
	"strconv"
	"strings"
)

// flagName is one flag, or one value of a field of several bits, and its DAT name.
type flagName struct {
	bits uint32
	name string
}

// flagText joins the names of the flags that are set with "|"; bits without a name are added as one hexadecimal number.
func flagText(flags uint32, none string, names ...flagName) string {
	if flags == 0 {
		return none
	}
	var set []string
	for _, n := range names {
		if flags&n.bits == n.bits {
			set = append(set, n.name)
			flags &^= n.bits
		}
	}
	if flags != 0 {
		set = append(set, "0x"+strconv.FormatUint(uint64(flags), 16))
	}
	return strings.Join(set, "|")
}

// String joins the DAT names of the flags: "COMPLETION_SUPPRESS_FLAG|COMPLETION_BARRIER_FENCE_FLAG".
func (f CompletionFlags) String() string {
	return flagText(uint32(f), "COMPLETION_DEFAULT_FLAG", flagName{uint32(CompletionSuppress), "COMPLETION_SUPPRESS_FLAG"},
		flagName{uint32(CompletionSolicitedWait), "COMPLETION_SOLICITED_WAIT_FLAG"},
		flagName{uint32(CompletionUnsignalled), "COMPLETION_UNSIGNALLED_FLAG"},
		flagName{uint32(CompletionBarrierFence), "COMPLETION_BARRIER_FENCE_FLAG"},
		flagName{uint32(CompletionEVDThreshold), "COMPLETION_EVD_THRESHOLD_FLAG"})
}

// String joins the DAT names of the privileges: "LOCAL_READ|REMOTE_WRITE".
func (p MemPriv) String() string {
	return flagText(uint32(p), "NONE", flagName{uint32(PrivLocalRead), "LOCAL_READ"}, flagName{uint32(PrivRemoteRead), "REMOTE_READ"},
		flagName{uint32(PrivLocalWrite), "LOCAL_WRITE"}, flagName{uint32(PrivRemoteWrite), "REMOTE_WRITE"},
		flagName{uint32(PrivRemoteAtomic), "REMOTE_ATOMIC"})
}

// String joins the DAT names of the streams: "EVD_DTO_FLAG|EVD_CONNECTION_FLAG".
func (f EVDFlags) String() string {
	return flagText(uint32(f), "no streams", flagName{uint32(EVDSoftware), "EVD_SOFTWARE_FLAG"}, flagName{uint32(EVDCR), "EVD_CR_FLAG"},
		flagName{uint32(EVDDTO), "EVD_DTO_FLAG"}, flagName{uint32(EVDConnection), "EVD_CONNECTION_FLAG"},
		flagName{uint32(EVDRMRBind), "EVD_RMR_BIND_FLAG"}, flagName{uint32(EVDAsync), "EVD_ASYNC_FLAG"})
}

// String joins the DAT names of the parts of the state: "EVD_STATE_ENABLED|EVD_STATE_WAITABLE".
func (s EVDState) String() string {
	return flagText(uint32(s), "no state", flagName{uint32(EVDEnabled), "EVD_STATE_ENABLED"}, flagName{uint32(EVDDisabled), "EVD_STATE_DISABLED"},
		flagName{uint32(EVDWaitable), "EVD_STATE_WAITABLE"}, flagName{uint32(EVDUnwaitable), "EVD_STATE_UNWAITABLE"},
		flagName{uint32(EVDConfigThreshold), "EVD_STATE_CONFIG_THRESHOLD"}, flagName{uint32(EVDConfigSolicited), "EVD_STATE_CONFIG_SOLICITED"},
		flagName{uint32(EVDConfigNotify), "EVD_STATE_CONFIG_NOTIFY"})
}
