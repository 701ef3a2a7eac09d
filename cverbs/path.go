package cverbs

// PathOptions replace parts of the path that the connection manager chose for a queue pair. Nil
// and zero fields replace nothing.
type PathOptions struct {
	TOS        *uint8 // IP type of service, or traffic class: DSCP << 2
	SL         *uint8 // service level, 0 to 15; on RoCE the VLAN priority
	GIDIndex   *uint8 // entry of the port's GID table that packets come from
	AckTimeout *uint8 // 4.096 us << AckTimeout, 0 to 31; 0 is no limit
	MTU        int    // bytes: 256, 512, 1024, 2048 or 4096; both ends must have the same
}

// IsZero reports whether the options replace nothing.
//
// Extension.
func (o PathOptions) IsZero() bool { return o == PathOptions{} }

// Apply sets attributes in attr: those that mask selects and for which o has a value. The caller
// then passes attr and mask to QP.Modify.
//
// Extension.
func (o PathOptions) Apply(attr *QPAttr, mask QPAttrMask) {
	if mask&QPAttrAV != 0 {
		replace(&attr.AH.TrafficClass, o.TOS)
		replace(&attr.AH.SL, o.SL)
		replace(&attr.AH.SGIDIndex, o.GIDIndex)
	}
	if m, ok := MTUOf(o.MTU); ok && mask&QPAttrPathMTU != 0 {
		attr.PathMTU = m
	}
	if mask&QPAttrTimeout != 0 {
		replace(&attr.Timeout, o.AckTimeout)
	}
}

func replace(field, by *uint8) {
	if by != nil {
		*field = *by
	}
}

// MTUOf converts a size in bytes (256, 512, 1024, 2048 or 4096) to a path MTU. ok is false for
// other sizes.
//
// Extension.
func MTUOf(bytes int) (m MTU, ok bool) {
	for m = MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, true
		}
	}
	return 0, false
}

// Path is the path of a queue pair, with its retry counts.
type Path struct {
	MTU        int // bytes
	TOS        uint8
	SL         uint8
	GIDIndex   uint8
	AckTimeout uint8 // 4.096 us << AckTimeout; 0 is no limit
	Retry      uint8 // retries without an acknowledgement
	RNRRetry   uint8 // retries while the peer has no receive; 7 is unlimited
}

// Path returns the attributes that describe the path.
//
// Extension.
func (a *QPAttr) Path() Path {
	return Path{
		MTU: a.PathMTU.Bytes(), TOS: a.AH.TrafficClass, SL: a.AH.SL, GIDIndex: a.AH.SGIDIndex, AckTimeout: a.Timeout,
		Retry: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
}
