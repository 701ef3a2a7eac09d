package udat

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Infinite is a timeout that never expires.
const Infinite time.Duration = math.MaxInt64

// Special values of counts.
const (
	ValueUnknown      = -2 // a count that the device does not report
	WatermarkInfinite = -1 // there is no watermark
	HWDefault         = -1
	SRQLWDefault      = 0 // there is no low watermark
)

// OptimalAlignment is an alignment of buffers, in bytes, that suits every provider.
const OptimalAlignment = 256

// Cookie is a value that the Consumer passes to a post and that the event of the completion
// returns.
type Cookie uint64

// ConnQual is a connection qualifier, on which a service point listens. A value q from 1 to 65535
// is port q. A larger value q is port (q mod 32001) + 33534, as in OpenFabrics DAPL.
type ConnQual uint64

// CompletionFlags modify a posted operation, or determine how the completions of an endpoint notify
// the Consumer.
type CompletionFlags uint32

// Completion flags.
const (
	CompletionDefault       CompletionFlags = 0
	CompletionSuppress      CompletionFlags = 0x01 // a successful operation makes no event
	CompletionSolicitedWait CompletionFlags = 0x02 // the matching receive of the peer notifies
	CompletionUnsignalled   CompletionFlags = 0x04 // the event does not notify
	CompletionBarrierFence  CompletionFlags = 0x08 // the operation starts after all earlier RDMA reads
	CompletionEVDThreshold  CompletionFlags = 0x10 // only as an endpoint attribute: Wait counts events
)

// MemPriv is a set of privileges on memory.
type MemPriv uint32

// Privileges.
const (
	PrivNone         MemPriv = 0x00
	PrivLocalRead    MemPriv = 0x01
	PrivRemoteRead   MemPriv = 0x02
	PrivLocalWrite   MemPriv = 0x10
	PrivRemoteWrite  MemPriv = 0x20
	PrivAll          MemPriv = 0x33
	PrivRemoteAtomic MemPriv = 0x40 // Extension.

	privKnown = PrivAll | PrivRemoteAtomic
)

// EVDFlags is a set of event streams that may feed a dispatcher.
type EVDFlags uint32

// Event streams.
const (
	EVDSoftware   EVDFlags = 0x001
	EVDCR         EVDFlags = 0x010
	EVDDTO        EVDFlags = 0x020
	EVDConnection EVDFlags = 0x040
	EVDRMRBind    EVDFlags = 0x080
	EVDAsync      EVDFlags = 0x100
	EVDDefault    EVDFlags = 0x1F0 // all streams except software events

	evdKnown = EVDDefault | EVDSoftware
)

// EVDState is the state of a dispatcher. It has three independent parts: whether it is enabled,
// whether it is waitable, and the config state.
type EVDState uint32

// Event dispatcher states. The config states are values of one bit field, whose mask is
// EVDConfigMask.
const (
	EVDEnabled         EVDState = 0x01
	EVDDisabled        EVDState = 0x02
	EVDWaitable        EVDState = 0x04
	EVDUnwaitable      EVDState = 0x08
	EVDConfigNotify    EVDState = 0x10
	EVDConfigSolicited EVDState = 0x20
	EVDConfigThreshold EVDState = 0x30
	EVDConfigMask      EVDState = 0x30
)

// QoS is a quality of service.
type QoS uint32

// Qualities of service.
const (
	QoSBestEffort     QoS = 0
	QoSHighThroughput QoS = 1
	QoSLowLatency     QoS = 2
	QoSEconomy        QoS = 4
	QoSPremium        QoS = 8
)

// ConnectFlags modify Connect.
type ConnectFlags uint32

// Connect flags.
const (
	ConnectDefault   ConnectFlags = 0
	ConnectMultipath ConnectFlags = 1
)

// CloseFlags determine how a connection or an adapter is closed.
type CloseFlags uint32

// Close flags.
const (
	CloseAbrupt   CloseFlags = 0
	CloseGraceful CloseFlags = 1
)

// PSPFlags determine who makes the endpoints of a public service point.
type PSPFlags uint32

// Public service point flags.
const (
	PSPConsumer PSPFlags = 0
	PSPProvider PSPFlags = 1
)

// EPState is the state of an endpoint.
type EPState uint32

// Endpoint states. The library does not use the UNCONFIGURED states of DAT's header. For example,
// it reports RESERVED instead of UNCONFIGURED_RESERVED.
const (
	EPUnconnected              EPState = 0
	EPReserved                 EPState = 2
	EPPassiveConnectionPending EPState = 4
	EPActiveConnectionPending  EPState = 6
	EPTentativeConnection      EPState = 7
	EPConnected                EPState = 9
	EPDisconnectPending        EPState = 10
	EPDisconnected             EPState = 11
	EPCompletionPending        EPState = 12

	epFlushing EPState = 254 // internal: the Consumer sees DISCONNECTED
	epFreed    EPState = 255
)

var epStateText = map[EPState]string{
	EPUnconnected:              "DAT_EP_STATE_UNCONNECTED",
	EPReserved:                 "DAT_EP_STATE_RESERVED",
	EPPassiveConnectionPending: "DAT_EP_STATE_PASSIVE_CONNECTION_PENDING",
	EPActiveConnectionPending:  "DAT_EP_STATE_ACTIVE_CONNECTION_PENDING",
	EPTentativeConnection:      "DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING",
	EPConnected:                "DAT_EP_STATE_CONNECTED",
	EPDisconnectPending:        "DAT_EP_STATE_DISCONNECT_PENDING",
	EPDisconnected:             "DAT_EP_STATE_DISCONNECTED",
	EPCompletionPending:        "DAT_EP_STATE_COMPLETION_PENDING",
	epFlushing:                 "FLUSHING",
	epFreed:                    "FREED",
}

// String returns the DAT name of the state, for example "DAT_EP_STATE_CONNECTED".
func (s EPState) String() string {
	if text, ok := epStateText[s]; ok {
		return text
	}
	return "endpoint state " + strconv.FormatUint(uint64(s), 10)
}

// flagName is the DAT name of one flag, or of one value of a field of several bits.
type flagName struct {
	bits uint32
	name string
}

// flagText joins the names of the flags that are set with "|", and appends bits without a name as
// one hexadecimal number. If flags is 0, it returns the text in the parameter none.
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

// String joins the DAT names of the flags, for example
// "COMPLETION_SUPPRESS_FLAG|COMPLETION_BARRIER_FENCE_FLAG".
func (f CompletionFlags) String() string {
	return flagText(uint32(f), "COMPLETION_DEFAULT_FLAG", flagName{uint32(CompletionSuppress), "COMPLETION_SUPPRESS_FLAG"},
		flagName{uint32(CompletionSolicitedWait), "COMPLETION_SOLICITED_WAIT_FLAG"},
		flagName{uint32(CompletionUnsignalled), "COMPLETION_UNSIGNALLED_FLAG"},
		flagName{uint32(CompletionBarrierFence), "COMPLETION_BARRIER_FENCE_FLAG"},
		flagName{uint32(CompletionEVDThreshold), "COMPLETION_EVD_THRESHOLD_FLAG"})
}

// String joins the DAT names of the privileges, for example "LOCAL_READ|REMOTE_WRITE".
func (p MemPriv) String() string {
	return flagText(uint32(p), "NONE", flagName{uint32(PrivLocalRead), "LOCAL_READ"},
		flagName{uint32(PrivRemoteRead), "REMOTE_READ"},
		flagName{uint32(PrivLocalWrite), "LOCAL_WRITE"}, flagName{uint32(PrivRemoteWrite), "REMOTE_WRITE"},
		flagName{uint32(PrivRemoteAtomic), "REMOTE_ATOMIC"})
}

// String joins the DAT names of the streams, for example "EVD_DTO_FLAG|EVD_CONNECTION_FLAG".
func (f EVDFlags) String() string {
	return flagText(uint32(f), "no streams", flagName{uint32(EVDSoftware), "EVD_SOFTWARE_FLAG"},
		flagName{uint32(EVDCR), "EVD_CR_FLAG"},
		flagName{uint32(EVDDTO), "EVD_DTO_FLAG"}, flagName{uint32(EVDConnection), "EVD_CONNECTION_FLAG"},
		flagName{uint32(EVDRMRBind), "EVD_RMR_BIND_FLAG"}, flagName{uint32(EVDAsync), "EVD_ASYNC_FLAG"})
}

// String joins the DAT names of the parts of the state, for example
// "EVD_STATE_ENABLED|EVD_STATE_WAITABLE".
func (s EVDState) String() string {
	return flagText(uint32(s), "no state", flagName{uint32(EVDEnabled), "EVD_STATE_ENABLED"},
		flagName{uint32(EVDDisabled), "EVD_STATE_DISABLED"},
		flagName{uint32(EVDWaitable), "EVD_STATE_WAITABLE"}, flagName{uint32(EVDUnwaitable), "EVD_STATE_UNWAITABLE"},
		flagName{uint32(EVDConfigThreshold), "EVD_STATE_CONFIG_THRESHOLD"},
		flagName{uint32(EVDConfigSolicited), "EVD_STATE_CONFIG_SOLICITED"},
		flagName{uint32(EVDConfigNotify), "EVD_STATE_CONFIG_NOTIFY"})
}
