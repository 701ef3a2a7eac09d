package verbsfabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/softroce"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/cm"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// port is one port of a device.
type port struct {
	device  string
	num     uint8
	info    fabric.DeviceInfo
	addrs   []netip.Addr // those of the port's IP addresses that connections may use, best first
	gid     cverbs.GIDEntry
	gidText string // why this GID was chosen
	table   []cverbs.GIDEntry
	iwarp   bool
	siw     bool // soft-iWARP
	dev     cverbs.DeviceAttr
	attr    cverbs.PortAttr
}

// transport returns the name of the transport.
func (p *port) transport() string {
	switch {
	case p.iwarp:
		return "iWARP"
	case p.roce():
		return p.gid.Type.String()
	}
	return "IB"
}

func (p *port) roce() bool { return !p.iwarp && p.attr.LinkLayer == cverbs.LinkLayerEthernet }

// restrict checks path options against the port. With a GID index, the port uses only that entry of
// its GID table and, on RoCE, only the address of the entry.
func (p *port) restrict(o fabric.PathOptions) error {
	beyondTOS := o
	beyondTOS.TOS = nil
	switch {
	case p.iwarp && !beyondTOS.IsZero():
		return fmt.Errorf("%w: iWARP has no service level, path MTU, GID index or acknowledgement timeout to set",
			fabric.ErrNotSupported)
	case o.SL != nil && *o.SL > 15:
		return errmap.Invalid("service level is %d, must be from 0 to 15", *o.SL)
	case o.AckTimeout != nil && *o.AckTimeout > 31:
		return errmap.Invalid("acknowledgement timeout is %d, must be from 0 to 31", *o.AckTimeout)
	case o.MTU > p.attr.ActiveMTU.Bytes():
		return errmap.Invalid("path MTU is %d, %s has %d", o.MTU, p.info.Name, p.attr.ActiveMTU.Bytes())
	case o.GIDIndex == nil:
		return nil
	}
	i := slices.IndexFunc(p.table, func(e cverbs.GIDEntry) bool { return e.Index == int(*o.GIDIndex) })
	if i < 0 {
		return errmap.Invalid("GID index is %d, where %s has no GID; it has: %s", *o.GIDIndex, p.info.Name, indexes(p.table))
	}
	e := p.table[i]
	p.gid, p.gidText = e, "the option says so"
	if !p.roce() {
		return nil
	}
	addr := e.Addr()
	p.info.Addr, p.info.Addrs, p.addrs = addr, []netip.Addr{addr}, []netip.Addr{addr}
	return nil
}

func indexes(table []cverbs.GIDEntry) string {
	var list []string
	for _, e := range table {
		list = append(list, strconv.Itoa(e.Index))
	}
	return strings.Join(list, ", ")
}

var vendors = map[uint32]string{
	0x02c9: "Mellanox", 0x15b3: "NVIDIA", 0x14e4: "Broadcom", 0x8086: "Intel", 0x1425: "Chelsio", 0x1077: "Marvell",
	0x1d0f: "Amazon", 0x1dd8: "AMD Pensando", 0x19e5: "Huawei", 0x1ded: "Alibaba", vendorRXE: softroce.Name,
	vendorSIW: "Soft-iWARP",
}

const (
	vendorRXE = softroce.Vendor
	vendorSIW = 0x626d74
)

// reach returns advice for the case that a peer does not answer: what to check on the given
// transport.
func reach(transport string) string {
	switch transport {
	case "IB":
		return "the state of both ports and their subnet manager (ibstat), the partition keys"
	case "iWARP":
		return "the peer's TCP port in every firewall between the two addresses, their subnets and routes"
	case "RoCE v2":
		return "UDP port 4791 in every firewall between the two addresses, their subnets and routes, " +
			"and that both ports have a GID of this kind for their address (datperf doctor)"
	}
	return "whether both addresses are in one Ethernet segment, " +
		"and both ports have a GID of this kind for their address (datperf doctor)"
}

// fabricAttr derives the fabric's attributes from the device's.
func (p *port) fabricAttr(rnrRetry uint8, pageSize int) fabric.Attr {
	d := &p.dev
	a := fabric.Attr{
		Info:           p.info,
		VendorName:     vendors[d.VendorID],
		VendorID:       d.VendorID,
		PartID:         d.VendorPartID,
		HWVersion:      d.HWVersion,
		FWVersion:      d.FirmwareVersion,
		Transport:      p.transport(),
		Reach:          reach(p.transport()),
		MaxQP:          d.MaxQP,
		MaxQPWR:        d.MaxQPWR,
		MaxSGE:         d.MaxSGE,
		MaxReadSGE:     d.MaxSGERD,
		MaxCQ:          d.MaxCQ,
		MaxCQE:         d.MaxCQE,
		MaxMR:          d.MaxMR,
		MaxMRSize:      d.MaxMRSize,
		MaxPD:          d.MaxPD,
		MaxSRQ:         d.MaxSRQ,
		MaxSRQWR:       max(d.MaxSRQWR-1, 0), // one entry is reserved, see srq
		MaxSRQSGE:      d.MaxSRQSGE,
		MaxReadIn:      d.MaxQPRDAtom,
		MaxReadOut:     d.MaxQPInitRDAtom,
		MaxReadTotal:   d.MaxResRDAtom,
		MaxMessage:     uint64(p.attr.MaxMsgSize),
		MaxInline:      cverbs.DefaultMaxInline,
		MTU:            p.attr.ActiveMTU.Bytes(),
		PageSize:       pageSize,
		SRQResize:      d.Caps&cverbs.DeviceSRQResize != 0,
		SRQOtherPD:     d.VendorID != vendorRXE && !p.iwarp, // soft-RoCE checks receives against the queue pair's domain
		Atomics:        d.AtomicCap != cverbs.AtomicNone,
		SendInvalidate: d.Caps&cverbs.DeviceMemMgtExt != 0,
		WriteImmediate: !p.iwarp,
		ReadSinkRemote: p.iwarp,
		PeerToPeer:     !p.iwarp,
		ExactBounds:    d.VendorID != vendorRXE, // soft-RoCE checks the region's bounds, not the window's
		EnforcesRNR:    !p.iwarp && rnrRetry < 7,
		Acknowledged:   !p.iwarp,
		SolicitedArm:   !p.siw,
		FailuresNotify: d.VendorID != vendorRXE, // soft-RoCE notifies of a failure only if its message was solicited
	}
	a.MaxConnData, a.MaxAcceptData, a.MaxRejectData = cm.MaxPrivate(p.iwarp)
	if d.Caps&cverbs.DeviceMemWindow != 0 {
		a.MaxMW = d.MaxMW
	}
	if a.MaxReadSGE == 0 {
		a.MaxReadSGE = a.MaxSGE
	}
	return a
}
