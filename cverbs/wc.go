package cverbs

// WCStatus is the outcome of a work request.
type WCStatus uint32

// Completion statuses, with the values of enum ibv_wc_status.
const (
	WCSuccess          WCStatus = 0
	WCLocLenErr        WCStatus = 1
	WCLocQPOpErr       WCStatus = 2
	WCLocEECOpErr      WCStatus = 3
	WCLocProtErr       WCStatus = 4
	WCWRFlushErr       WCStatus = 5
	WCMWBindErr        WCStatus = 6
	WCBadRespErr       WCStatus = 7
	WCLocAccessErr     WCStatus = 8
	WCRemInvReqErr     WCStatus = 9
	WCRemAccessErr     WCStatus = 10
	WCRemOpErr         WCStatus = 11
	WCRetryExcErr      WCStatus = 12
	WCRNRRetryExcErr   WCStatus = 13
	WCLocRDDViolErr    WCStatus = 14
	WCRemInvRDReqErr   WCStatus = 15
	WCRemAbortErr      WCStatus = 16
	WCInvEECNErr       WCStatus = 17
	WCInvEECStateErr   WCStatus = 18
	WCFatalErr         WCStatus = 19
	WCRespTimeoutErr   WCStatus = 20
	WCGeneralErr       WCStatus = 21
	WCTMErr            WCStatus = 22
	WCTMRndvIncomplete WCStatus = 23
)

var wcStatusNames = map[WCStatus]string{
	WCSuccess: "SUCCESS", WCLocLenErr: "LOC_LEN_ERR", WCLocQPOpErr: "LOC_QP_OP_ERR", WCLocEECOpErr: "LOC_EEC_OP_ERR",
	WCLocProtErr: "LOC_PROT_ERR", WCWRFlushErr: "WR_FLUSH_ERR", WCMWBindErr: "MW_BIND_ERR", WCBadRespErr: "BAD_RESP_ERR",
	WCLocAccessErr: "LOC_ACCESS_ERR", WCRemInvReqErr: "REM_INV_REQ_ERR", WCRemAccessErr: "REM_ACCESS_ERR",
	WCRemOpErr: "REM_OP_ERR", WCRetryExcErr: "RETRY_EXC_ERR", WCRNRRetryExcErr: "RNR_RETRY_EXC_ERR",
	WCLocRDDViolErr: "LOC_RDD_VIOL_ERR", WCRemInvRDReqErr: "REM_INV_RD_REQ_ERR", WCRemAbortErr: "REM_ABORT_ERR",
	WCInvEECNErr: "INV_EECN_ERR", WCInvEECStateErr: "INV_EEC_STATE_ERR", WCFatalErr: "FATAL_ERR",
	WCRespTimeoutErr: "RESP_TIMEOUT_ERR", WCGeneralErr: "GENERAL_ERR", WCTMErr: "TM_ERR",
	WCTMRndvIncomplete: "TM_RNDV_INCOMPLETE",
}

// String returns the verbs name without its prefix.
//
// Implements: ibv_wc_status_str.
func (s WCStatus) String() string { return enumName(wcStatusNames, s, "WCStatus") }

// WCOpcode is the kind of a completed request. Every receive has the bit WCRecv.
type WCOpcode uint32

// Completion opcodes, with the values of enum ibv_wc_opcode.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

var wcOpcodeNames = map[WCOpcode]string{
	WCSend: "SEND", WCRDMAWrite: "RDMA_WRITE", WCRDMARead: "RDMA_READ", WCCompSwap: "COMP_SWAP", WCFetchAdd: "FETCH_ADD",
	WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCRecv: "RECV", WCRecvRDMAWithImm: "RECV_RDMA_WITH_IMM",
}

// String returns the verbs name without its prefix.
//
// Extension.
func (o WCOpcode) String() string { return enumName(wcOpcodeNames, o, "WCOpcode") }

// WCFlags report which fields of a completion are valid.
type WCFlags uint32

// Completion flags, with the values of enum ibv_wc_flags.
const (
	WCGRH      WCFlags = 1 << 0 // the first 40 bytes of the buffer hold a global route header
	WCWithImm  WCFlags = 1 << 1 // Imm holds immediate data
	WCIPCsumOK WCFlags = 1 << 2
	WCWithInv  WCFlags = 1 << 3 // Imm holds the key that the peer invalidated
)

var wcFlagNames = []bitName{{1 << 0, "GRH"}, {1 << 1, "WITH_IMM"}, {1 << 2, "IP_CSUM_OK"}, {1 << 3, "WITH_INV"}}

// String joins the names of the flags with |.
//
// Extension.
func (f WCFlags) String() string { return bitNames(wcFlagNames, f) }

// GRHSize is the size of a global route header, in bytes. A UD queue pair writes such a header into
// each receive buffer, before the data.
const GRHSize = 40

// MaxPolls is the largest number of polls in one CQ.PollSpin, CQ.PollEx or Turn.Run. On hardware
// 1024 polls take about 10 microseconds.
const MaxPolls = 1024

// WC is one completion: struct ibv_wc, which the driver fills. If Status is not WCSuccess, only ID,
// Status, VendorErr and QPNum are valid. ByteLen, Imm, SrcQP and Flags are 0 then, and the other
// fields are undefined.
type WC struct {
	ID        uint64 // ID of the work request
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32 // device specific detail of an error
	ByteLen   uint32 // receives: number of bytes; undefined for other requests
	Imm       uint32 // WCWithImm: immediate data, in host byte order; WCWithInv: the invalidated key
	QPNum     uint32 // local queue pair
	SrcQP     uint32 // UD: the sender's queue pair
	Flags     WCFlags

	PKeyIndex    uint16 // UD: index of the P_Key
	SLID         uint16 // UD: the sender's local identifier
	SL           uint8  // UD: service level
	DLIDPathBits uint8  // UD: path bits of the local identifier
}
