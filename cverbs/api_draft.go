// This file holds the API to be: signatures are final unless announced; the implementation follows.
package cverbs

import (
	"context"
	"net/netip"
	"time"
)

type (
	Context      struct{}
	PD           struct{}
	MR           struct{}
	MW           struct{}
	CompChannel  struct{}
	CQ           struct{}
	SRQ          struct{}
	QP           struct{}
	AH           struct{}
	EventChannel struct{}
	CMID         struct{}
)

// Devices and contexts.
func Devices() ([]DeviceInfo, error)                               { return nil, ErrNotSupported }
func OpenDevice(name string) (*Context, error)                     { return nil, ErrNotSupported }
func (c *Context) Name() string                                    { return "" }
func (c *Context) NumCompVectors() int                             { return 0 }
func (c *Context) QueryDevice() (DeviceAttr, error)                { return DeviceAttr{}, ErrNotSupported }
func (c *Context) QueryPort(port uint8) (PortAttr, error)          { return PortAttr{}, ErrNotSupported }
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) { return 0, ErrNotSupported }
func (c *Context) QueryGID(port uint8, index int) (GIDEntry, error) {
	return GIDEntry{}, ErrNotSupported
}
func (c *Context) GIDTable() ([]GIDEntry, error) { return nil, ErrNotSupported }
func (c *Context) BestGID(port uint8) (GIDEntry, string, error) {
	return GIDEntry{}, "", ErrNotSupported
}
func (c *Context) AsyncEvent(deadline time.Time) (AsyncEvent, error) {
	return AsyncEvent{}, ErrNotSupported
}
func (c *Context) AsyncEventContext(ctx context.Context) (AsyncEvent, error) {
	return AsyncEvent{}, ErrNotSupported
}
func (c *Context) WakeAsync()                               {} // AsyncEvent returns os.ErrDeadlineExceeded at once
func (c *Context) Close() error                             { return ErrNotSupported }
func (c *Context) AllocPD() (*PD, error)                    { return nil, ErrNotSupported }
func (c *Context) CreateCompChannel() (*CompChannel, error) { return nil, ErrNotSupported }
func (c *Context) CreateCQ(depth int, ch *CompChannel, vector int) (*CQ, error) {
	return nil, ErrNotSupported
}

// Protection domain and what lives in it.
func (p *PD) Context() *Context                                 { return nil }
func (p *PD) Close() error                                      { return ErrNotSupported }
func (p *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) { return nil, ErrNotSupported } // pins buf
func (p *PD) RegMRAddr(addr uintptr, n int, access AccessFlags) (*MR, error) {
	return nil, ErrNotSupported
}                                                  // foreign memory
func (p *PD) AllocMW(typ MWType) (*MW, error)      { return nil, ErrNotSupported }
func (p *PD) CreateSRQ(init SRQInit) (*SRQ, error) { return nil, ErrNotSupported }
func (p *PD) CreateQP(init QPInit) (*QP, error)    { return nil, ErrNotSupported } // RESET state
func (p *PD) CreateAH(attr AHAttr) (*AH, error)    { return nil, ErrNotSupported }

func (m *MR) LKey() uint32   { return 0 }
func (m *MR) RKey() uint32   { return 0 }
func (m *MR) Addr() uint64   { return 0 }
func (m *MR) Len() int       { return 0 }
func (m *MR) Close() error   { return ErrNotSupported }
func (w *MW) Type() MWType   { return 0 }
func (w *MW) RKey() uint32   { return 0 }
func (w *MW) Close() error   { return ErrNotSupported }
func (a *AH) Handle() uint64 { return 0 }
func (a *AH) Close() error   { return ErrNotSupported }

// Completions.
func (ch *CompChannel) Wait(deadline time.Time) (int, error)         { return 0, ErrNotSupported }
func (ch *CompChannel) WaitContext(ctx context.Context) (int, error) { return 0, ErrNotSupported }
func (ch *CompChannel) Wake()                                        {}
func (ch *CompChannel) Close() error                                 { return ErrNotSupported }

func (q *CQ) Poll(wc []WC) (int, error)               { return 0, ErrNotSupported }
func (q *CQ) Arm(solicitedOnly bool) error            { return ErrNotSupported }
func (q *CQ) Fired() bool                             { return false } // an event of this CQ was taken by its channel's Wait since the last Fired
func (q *CQ) Depth() int                              { return 0 }
func (q *CQ) Resize(depth int) error                  { return ErrNotSupported }
func (q *CQ) Moderate(count, periodUsec uint16) error { return ErrNotSupported }
func (q *CQ) Close() error                            { return ErrNotSupported }

// Queues.
func (s *SRQ) PostRecv(wrs []RecvWR, sges []SGE) (int, error) { return 0, ErrNotSupported }
func (s *SRQ) Resize(maxWR uint32) error                      { return ErrNotSupported }
func (s *SRQ) SetLimit(limit uint32) error                    { return ErrNotSupported }
func (s *SRQ) Query() (SRQAttr, error)                        { return SRQAttr{}, ErrNotSupported }
func (s *SRQ) Close() error                                   { return ErrNotSupported }

func (q *QP) Num() uint32                                       { return 0 }
func (q *QP) Type() QPType                                      { return 0 }
func (q *QP) Cap() QPCap                                        { return QPCap{} } // as granted
func (q *QP) PostSend(wrs []SendWR, sges []SGE) (int, error)    { return 0, ErrNotSupported }
func (q *QP) PostRecv(wrs []RecvWR, sges []SGE) (int, error)    { return 0, ErrNotSupported }
func (q *QP) BindMW(mw *MW, wr BindWR) (rkey uint32, err error) { return 0, ErrNotSupported }
func (q *QP) Modify(attr QPAttr, mask QPAttrMask) error         { return ErrNotSupported }
func (q *QP) Query() (QPAttr, error)                            { return QPAttr{}, ErrNotSupported }
func (q *QP) State() (QPState, error)                           { return 0, ErrNotSupported } // asks the device
func (q *QP) ToInit(port uint8, access AccessFlags) error       { return ErrNotSupported }
func (q *QP) ToRTR(attr QPAttr) error                           { return ErrNotSupported } // mask chosen by the QP's type
func (q *QP) ToRTS(attr QPAttr) error                           { return ErrNotSupported }
func (q *QP) ToError() error                                    { return ErrNotSupported }
func (q *QP) ToReset() error                                    { return ErrNotSupported }
func (q *QP) Close() error                                      { return ErrNotSupported }

// Connection manager. Every method except Get is non-blocking; results come as events.
func CreateEventChannel() (*EventChannel, error)                 { return nil, ErrNotSupported }
func (ch *EventChannel) Get(deadline time.Time) (CMEvent, error) { return CMEvent{}, ErrNotSupported }
func (ch *EventChannel) GetContext(ctx context.Context) (CMEvent, error) {
	return CMEvent{}, ErrNotSupported
}
func (ch *EventChannel) Wake()                                {} // Get returns os.ErrDeadlineExceeded at once
func (ch *EventChannel) Close() error                         { return ErrNotSupported }
func (ch *EventChannel) CreateID(ps PortSpace) (*CMID, error) { return nil, ErrNotSupported }

func (id *CMID) SetData(v any)                      {} // anything the user wants to find again from an event
func (id *CMID) Data() any                          { return nil }
func (id *CMID) BindAddr(addr netip.AddrPort) error { return ErrNotSupported }
func (id *CMID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	return ErrNotSupported
}                                                         // zero src: routing chooses
func (id *CMID) ResolveRoute(timeout time.Duration) error { return ErrNotSupported }
func (id *CMID) Listen(backlog int) error                 { return ErrNotSupported }
func (id *CMID) Connect(p ConnParam) error                { return ErrNotSupported }
func (id *CMID) Accept(p ConnParam) error                 { return ErrNotSupported }
func (id *CMID) Reject(privateData []byte) error          { return ErrNotSupported }
func (id *CMID) Establish() error                         { return ErrNotSupported }
func (id *CMID) Notify(t AsyncEventType) error            { return ErrNotSupported }
func (id *CMID) Disconnect() error                        { return ErrNotSupported }
func (id *CMID) InitQPAttr(state QPState) (QPAttr, QPAttrMask, error) {
	return QPAttr{}, 0, ErrNotSupported
}
func (id *CMID) Migrate(ch *EventChannel) error            { return ErrNotSupported }
func (id *CMID) LocalAddr() netip.AddrPort                 { return netip.AddrPort{} }
func (id *CMID) RemoteAddr() netip.AddrPort                { return netip.AddrPort{} }
func (id *CMID) Device() string                            { return "" } // "" until bound to a device
func (id *CMID) Port() uint8                               { return 0 }
func (id *CMID) Context() (*Context, error)                { return nil, ErrNotSupported } // owned by librdmacm: Close refuses
func (id *CMID) CreateQP(pd *PD, init QPInit) (*QP, error) { return nil, ErrNotSupported } // mode A; pd made from id.Context()
func (id *CMID) SetTOS(tos uint8) error                    { return ErrNotSupported }
func (id *CMID) SetReuseAddr(on bool) error                { return ErrNotSupported }
func (id *CMID) SetAFOnly(on bool) error                   { return ErrNotSupported }
func (id *CMID) SetAckTimeout(timeout uint8) error         { return ErrNotSupported }
func (id *CMID) Close() error                              { return ErrNotSupported }

// Live counts the objects that are not closed, by kind ("QP", "MR", ...): for leak checks in tests.
func Live() map[string]int { return map[string]int{} }
