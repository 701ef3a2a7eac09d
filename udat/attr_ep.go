package udat

// EPAttr are the attributes of an endpoint. A field left 0 takes the provider's default; None says none at all where
// 0 would mean that. Counts are of operations, segments or reads; sizes are in bytes.
type EPAttr struct {
	ServiceType            ServiceType
	MaxMessageSize         uint64 // largest Send or receive; default: the device's largest
	MaxRDMASize            uint64 // largest RDMA; default: the device's largest
	QoS                    QoS
	RecvCompletionFlags    CompletionFlags // default, UNSIGNALLED, SOLICITED_WAIT or EVD_THRESHOLD
	RequestCompletionFlags CompletionFlags // default, UNSIGNALLED or EVD_THRESHOLD
	MaxRecvDTOs            int             // receives outstanding; default 16. With an SRQ: the hard high watermark, default off
	MaxRequestDTOs         int             // sends, RDMAs and binds outstanding; default 16
	MaxRecvIOV             int             // segments of a receive; default 4
	MaxRequestIOV          int             // segments of a send; default 4
	MaxRDMAReadIn          int             // reads and atomics that the peer may have outstanding here; default 4
	MaxRDMAReadOut         int             // reads and atomics outstanding to the peer; default 4
	SRQSoftHW              int             // soft high watermark with an SRQ; default off
	MaxRDMAReadIOV         int             // segments of an RDMA read; default MaxRequestIOV
	MaxRDMAWriteIOV        int             // segments of an RDMA write; default MaxRequestIOV
}

// None in a field of EPAttr is an explicit zero.
const None = -3

// ServiceType is the transport service of an endpoint.
type ServiceType uint32

// ServiceRC is the reliable connected service, the only one of DAT 1.2.
const ServiceRC ServiceType = 0

const (
	defaultDTOs  = 16
	defaultIOV   = 4
	defaultReads = 4
)

// resolve gives the attributes with the defaults filled in, or says what is wrong with them.
func (a *EPAttr) resolve(op string, ia *IA, srq *SRQ) (EPAttr, error) {
	var r EPAttr
	if a != nil {
		r = *a
	}
	dev := ia.device.Attr()
	if r.ServiceType != ServiceRC {
		return r, fail(op, InvalidParameter, SubArg6, "ServiceType is %d, must be ServiceRC", r.ServiceType)
	}
	if r.QoS != QoSBestEffort {
		return r, fail(op, ModelNotSupported, SubNone, "QoS is %d, only QoSBestEffort is supported", r.QoS)
	}
	if !validEPFlags(r.RecvCompletionFlags, CompletionUnsignalled, CompletionSolicitedWait, CompletionEVDThreshold) {
		return r, fail(op, InvalidParameter, SubArg6, "RecvCompletionFlags is 0x%x: must be default, unsignalled, solicited wait or threshold", uint32(r.RecvCompletionFlags))
	}
	if !validEPFlags(r.RequestCompletionFlags, CompletionUnsignalled, CompletionEVDThreshold) {
		return r, fail(op, InvalidParameter, SubArg6, "RequestCompletionFlags is 0x%x: must be default, unsignalled or threshold", uint32(r.RequestCompletionFlags))
	}
	requestIOV := r.MaxRequestIOV
	if requestIOV <= 0 {
		requestIOV = defaultIOV
	}
	recvDefault := defaultDTOs
	if srq != nil {
		recvDefault = HWDefault
	}
	for _, f := range []struct {
		name  string
		value *int
		unset int
		limit int
	}{
		{"MaxRecvDTOs", &r.MaxRecvDTOs, recvDefault, dev.MaxQPWR - spareEntries},
		{"MaxRequestDTOs", &r.MaxRequestDTOs, defaultDTOs, dev.MaxQPWR - spareEntries},
		{"MaxRecvIOV", &r.MaxRecvIOV, min(defaultIOV, dev.MaxSGE), dev.MaxSGE},
		{"MaxRequestIOV", &r.MaxRequestIOV, min(defaultIOV, dev.MaxSGE), dev.MaxSGE},
		{"MaxRDMAReadIn", &r.MaxRDMAReadIn, min(defaultReads, dev.MaxReadIn), min(dev.MaxReadIn, 255)},
		{"MaxRDMAReadOut", &r.MaxRDMAReadOut, min(defaultReads, dev.MaxReadOut), min(dev.MaxReadOut, 255)},
		{"SRQSoftHW", &r.SRQSoftHW, HWDefault, dev.MaxSRQWR},
		{"MaxRDMAReadIOV", &r.MaxRDMAReadIOV, min(requestIOV, dev.MaxReadSGE), dev.MaxReadSGE},
		{"MaxRDMAWriteIOV", &r.MaxRDMAWriteIOV, min(requestIOV, dev.MaxSGE), dev.MaxSGE},
	} {
		switch {
		case *f.value == 0:
			*f.value = f.unset
		case *f.value == None:
			*f.value = 0
		case *f.value == HWDefault && f.unset == HWDefault:
		case *f.value < 0 || *f.value > f.limit:
			return r, fail(op, InvalidParameter, SubArg6, "%s is %d, must be from 0 to %d", f.name, *f.value, f.limit)
		}
	}
	for _, f := range []struct {
		name  string
		value *uint64
	}{{"MaxMessageSize", &r.MaxMessageSize}, {"MaxRDMASize", &r.MaxRDMASize}} {
		if *f.value == 0 {
			*f.value = dev.MaxMessage
		}
		if *f.value > dev.MaxMessage {
			return r, fail(op, InvalidParameter, SubArg6, "%s is %d bytes, the limit is %d", f.name, *f.value, dev.MaxMessage)
		}
	}
	return r, nil
}

func validEPFlags(f CompletionFlags, allowed ...CompletionFlags) bool {
	if f == CompletionDefault {
		return true
	}
	for _, a := range allowed {
		if f == a {
			return true
		}
	}
	return false
}
