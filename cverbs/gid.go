package cverbs

import (
	"fmt"
	"net/netip"
)

// GID is a global identifier of a port: an IPv6 address, or an IPv4 address mapped into IPv6.
type GID [16]byte

// Addr returns the GID as an IP address. An IPv4 address that is mapped into IPv6 is returned as
// IPv4.
//
// Extension.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether the GID is all zeroes, as in an empty table entry.
//
// Extension.
func (g GID) IsZero() bool { return g == GID{} }

// String returns the text form of the address.
//
// Extension.
func (g GID) String() string { return g.Addr().String() }

// GIDType is the protocol of a GID table entry.
type GIDType uint32

// GID types, with the values of enum ibv_gid_type.
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

var gidTypeNames = map[GIDType]string{GIDTypeIB: "IB", GIDTypeRoCEv1: "RoCE v1", GIDTypeRoCEv2: "RoCE v2"}

// String returns the type's name.
//
// Extension.
func (t GIDType) String() string { return enumName(gidTypeNames, t, "GIDType") }

// GIDEntry is one valid entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Index   int // in the port's table
	Port    uint8
	Type    GIDType
	IfIndex int    // of the network device, 0 if there is none
	NetDev  string // name of the network device, "" if it cannot be looked up
}

// Addr returns the entry's address. The zone of a link-local IPv6 address is the network device.
//
// Extension.
func (e GIDEntry) Addr() netip.Addr {
	return withZone(e.GID.Addr(), e.NetDev)
}

func needsZone(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" }

// withZone adds the network device to a link-local IPv6 address that has no zone.
func withZone(a netip.Addr, device string) netip.Addr {
	if needsZone(a) {
		return a.WithZone(device)
	}
	return a
}

// gidRank returns an entry's rank, where lower is better, and a text that describes the entry.
func gidRank(e GIDEntry) (rank int, what string) {
	a := e.GID.Addr()
	switch {
	case e.GID.IsZero():
		return 99, "empty"
	case e.Type == GIDTypeIB:
		return 0, "InfiniBand or iWARP"
	case e.Type == GIDTypeRoCEv2 && a.Is4():
		return 1, "RoCE v2 with an IPv4 address"
	case e.Type == GIDTypeRoCEv2 && !a.IsLinkLocalUnicast():
		return 2, "RoCE v2 with a global IPv6 address"
	case e.Type == GIDTypeRoCEv2:
		return 3, "RoCE v2 with a link-local IPv6 address"
	case e.Type == GIDTypeRoCEv1:
		return 4, "RoCE v1"
	}
	return 98, "of an unknown type"
}

// RankGIDs chooses the entry to use. The order is: InfiniBand or iWARP, RoCE v2 with IPv4, RoCE v2
// with global IPv6, RoCE v2 with link-local IPv6, RoCE v1; among equals the lowest index. The
// result reason names the choice and the number of entries. ok is false if no entry is usable.
//
// Extension.
func RankGIDs(entries []GIDEntry) (best GIDEntry, reason string, ok bool) {
	bestRank, bestWhat := 98, ""
	for _, e := range entries {
		if r, what := gidRank(e); r < bestRank || (r == bestRank && ok && e.Index < best.Index) {
			best, bestRank, bestWhat, ok = e, r, what, r < 98
		}
	}
	if !ok {
		return GIDEntry{}, fmt.Sprintf("none of %d GID table entries can be used", len(entries)), false
	}
	reason = fmt.Sprintf("GID index %d (%s) is %s", best.Index, best.GID, bestWhat)
	if best.NetDev != "" {
		reason += " on " + best.NetDev
	}
	if len(entries) > 1 {
		reason += fmt.Sprintf(", the best of %d entries", len(entries))
	}
	return best, reason, true
}
