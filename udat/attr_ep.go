package udat

import (
	"slices"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// EPAttr are the attributes of an endpoint. For a field that is 0 the default applies; [None] is an
// explicit 0. MaxRDMAReadIn is the exception: a 0 in this field means 0, so that peers get no
// access that the program has not granted. Counts are of operations, segments or reads; sizes are
// in bytes.
type EPAttr struct {
	ServiceType            ServiceType
	QoS                    QoS
	MaxMessageSize         uint64          // largest Send or receive; default: the device's limit
	MaxRDMASize            uint64          // largest RDMA; default: the device's limit
	MaxRequestIOV          int             // segments of a send; default 4
	MaxRDMAWriteIOV        int             // segments of an RDMA write; default MaxRequestIOV
	MaxRDMAReadIOV         int             // segments of an RDMA read; default MaxRequestIOV
	MaxRecvIOV             int             // segments of a receive; default 4
	RecvCompletionFlags    CompletionFlags // CompletionDefault, UNSIGNALLED, SOLICITED_WAIT or EVD_THRESHOLD
	RequestCompletionFlags CompletionFlags // CompletionDefault, UNSIGNALLED or EVD_THRESHOLD
	// receives in flight; default 16. On an endpoint with an SRQ this field is the hard high watermark
	// instead, and by default there is no watermark
	MaxRecvDTOs       int
	MaxRequestDTOs    int         // sends, RDMAs and binds in flight; default 16
	MaxRDMAReadIn     int         // reads and atomics that the peer may have in flight here; 4 if no EPAttr is passed
	MaxRDMAReadOut    int         // reads and atomics in flight to the peer; default 4
	SRQSoftHW         int         // soft high watermark with an SRQ; default: none
	TransportSpecific []NamedAttr // must be empty
	ProviderSpecific  []NamedAttr // must be empty
}

// requestIOV returns the greatest number of segments of any request, at least 1.
func (a *EPAttr) requestIOV() int {
	return max(a.MaxRequestIOV, a.MaxRDMAReadIOV, a.MaxRDMAWriteIOV, 1)
}

// None in a field of EPAttr is an explicit zero.
const None = -3

// ServiceType is the transport service of an endpoint.
type ServiceType uint32

// ServiceRC is the reliable connected service, the only service of DAT 1.2.
const ServiceRC ServiceType = 0

const (
	defaultDTOs  = 16
	defaultIOV   = 4
	defaultReads = 4
)

// counts returns those attributes that are numbers of things, not sizes or flags, each with its
// default and its limit. The parameter shared states whether the endpoint has a shared receive
// queue.
func (a *EPAttr) counts(dev *fabric.Attr, shared bool) []epCount {
	dtos := min(defaultDTOs, maxDTOs(dev))
	recvs := dtos
	if shared {
		recvs = HWDefault
	}
	requestIOV := a.MaxRequestIOV
	if requestIOV <= 0 {
		requestIOV = defaultIOV
	}
	return []epCount{
		{"MaxRecvDTOs", &a.MaxRecvDTOs, recvs, maxDTOs(dev)},
		{"MaxRequestDTOs", &a.MaxRequestDTOs, dtos, maxDTOs(dev)},
		{"MaxRecvIOV", &a.MaxRecvIOV, min(defaultIOV, dev.MaxSGE), dev.MaxSGE},
		{"MaxRequestIOV", &a.MaxRequestIOV, min(defaultIOV, dev.MaxSGE), dev.MaxSGE},
		{"MaxRDMAReadIn", &a.MaxRDMAReadIn, min(defaultReads, dev.MaxReadIn), min(dev.MaxReadIn, 255)},
		{"MaxRDMAReadOut", &a.MaxRDMAReadOut, min(defaultReads, dev.MaxReadOut), min(dev.MaxReadOut, 255)},
		{"SRQSoftHW", &a.SRQSoftHW, HWDefault, dev.MaxSRQWR},
		{"MaxRDMAReadIOV", &a.MaxRDMAReadIOV, min(requestIOV, dev.MaxReadSGE), dev.MaxReadSGE},
		{"MaxRDMAWriteIOV", &a.MaxRDMAWriteIOV, min(requestIOV, dev.MaxSGE), dev.MaxSGE},
	}
}

// maxDTOs returns the limit of MaxRecvDTOs and of MaxRequestDTOs. Both limits are below MaxCQE/2,
// because one completion queue must have room for the completions of receives and of requests.
func maxDTOs(dev *fabric.Attr) int { return min(dev.MaxQPWR, dev.MaxCQE/2) - spareEntries }

type epCount struct {
	name         string
	value        *int
	unset, limit int
}

// resolve returns the attributes with the defaults filled in, and an error if they are invalid.
// srqIOV is the number of segments of a receive of the shared receive queue, or 0 if the endpoint
// has no shared receive queue.
func (a *EPAttr) resolve(op string, dev *fabric.Attr, srqIOV int) (EPAttr, error) {
	var r EPAttr
	if a != nil {
		r = *a
		if r.MaxRDMAReadIn == 0 {
			r.MaxRDMAReadIn = None
		}
	}
	shared := srqIOV > 0
	if shared {
		r.MaxRecvIOV = srqIOV
	}
	for _, c := range r.counts(dev, shared) {
		switch *c.value {
		case 0:
			*c.value = c.unset
		case None:
			*c.value = 0
		}
	}
	if r.MaxMessageSize == 0 {
		r.MaxMessageSize = dev.MaxMessage
	}
	if r.MaxRDMASize == 0 {
		r.MaxRDMASize = dev.MaxMessage
	}
	return r, r.check(op, dev, shared)
}

// check returns an error if the device cannot provide the attributes. The caller has filled in the
// defaults.
func (a *EPAttr) check(op string, dev *fabric.Attr, shared bool) error {
	arg := attrArgument(op)
	switch {
	case a.ServiceType != ServiceRC:
		return fail(op, InvalidParameter, arg, "ServiceType is %d, must be ServiceRC", a.ServiceType)
	case a.QoS != QoSBestEffort:
		return fail(op, ModelNotSupported, SubNone, "QoS is %d, only QoSBestEffort is supported", a.QoS)
	case !slices.Contains(recvFlagValues, a.RecvCompletionFlags):
		return fail(op, InvalidParameter, arg, "RecvCompletionFlags is %v: must be one of %v", a.RecvCompletionFlags,
			recvFlagValues)
	case !slices.Contains(requestFlagValues, a.RequestCompletionFlags):
		return fail(op, InvalidParameter, arg, "RequestCompletionFlags is %v: must be one of %v", a.RequestCompletionFlags,
			requestFlagValues)
	case len(a.TransportSpecific)+len(a.ProviderSpecific) > 0:
		return fail(op, InvalidParameter, arg, "no transport- or provider-specific attributes are known")
	case a.MaxMessageSize > dev.MaxMessage:
		return fail(op, InvalidParameter, arg, "MaxMessageSize is %d bytes, the limit is %d", a.MaxMessageSize,
			dev.MaxMessage)
	case a.MaxRDMASize > dev.MaxMessage:
		return fail(op, InvalidParameter, arg, "MaxRDMASize is %d bytes, the limit is %d", a.MaxRDMASize, dev.MaxMessage)
	}
	for _, c := range a.counts(dev, shared) {
		if *c.value == HWDefault && c.unset == HWDefault {
			continue
		}
		if *c.value < 0 || *c.value > c.limit {
			return fail(op, InvalidParameter, arg, "%s is %d, must be from 0 to %d", c.name, *c.value, c.limit)
		}
	}
	return nil
}

// The values that RecvCompletionFlags and RequestCompletionFlags may have.
var (
	recvFlagValues = []CompletionFlags{CompletionDefault, CompletionUnsignalled, CompletionSolicitedWait,
		CompletionEVDThreshold}
	requestFlagValues = []CompletionFlags{CompletionDefault, CompletionUnsignalled, CompletionEVDThreshold}
)

// NamedAttr is a name and a value, both as text.
type NamedAttr struct{ Name, Value string }

func (ia *IA) inlineWanted() int { return min(cverbs.DefaultMaxInline, ia.device.Attr().MaxInline) }
