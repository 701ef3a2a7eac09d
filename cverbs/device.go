//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"strings"
	"syscall"
	"unsafe"
)

// vendorRXE is the vendor id of the kernel's soft-RoCE.
const vendorRXE = 0xffffff

// Context is an open device.
type Context struct {
	life    life
	c       *C.struct_ibv_context
	name    string
	async   *waiter
	borrows bool // the ibv_context belongs to librdmacm
	rxe     C.int
	asyncEv C.struct_cv_async
	asyncRC C.int
	asyncFn func(uintptr) bool
}

// eachDevice calls f for each present device until f returns false. A kernel without RDMA has no
// devices. eachDevice first checks that enough file descriptors are free. With too few of them,
// libibverbs would omit the devices that it cannot read. If it also could not load a driver, it
// would never try to load that driver again.
func eachDevice(f func(*C.struct_ibv_device) bool) error {
	if err := load(); err != nil {
		return err
	}
	if err := spareFiles(); err != nil {
		return err
	}
	var n C.int
	list, err := C.cv_devices(&n)
	if list == nil {
		if e := errnoOf(err); e != syscall.ENOSYS {
			return &Error{Verb: "ibv_get_device_list", Errno: e}
		}
		return nil
	}
	defer C.ibv_free_device_list(list)
	for _, d := range unsafe.Slice(list, int(n)) {
		if !f(d) {
			break
		}
	}
	return nil
}

// Devices lists the verbs devices of this host. On a kernel without RDMA the list is empty. Errors:
// ErrNotSupported if libibverbs or librdmacm is not installed; the text names the packages. EMFILE
// or ENFILE if fewer than 8 files can be opened; the text names the limit.
//
// Implements: ibv_get_device_list, ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index.
func Devices() ([]DeviceInfo, error) {
	var all []DeviceInfo
	err := eachDevice(func(d *C.struct_ibv_device) bool {
		all = append(all, DeviceInfo{
			Name:     C.GoString(C.ibv_get_device_name(d)),
			GUID:     be64(uint64(C.ibv_get_device_guid(d))),
			NodeType: NodeType(d.node_type),
			Index:    int(C.ibv_get_device_index(d)),

			Transport: TransportType(d.transport_type),
		})
		return true
	})
	return all, err
}

// OpenDevice opens the device with this name. Errors: ENODEV if there is no such device; the text
// lists the devices that are present. ErrNotSupported, EMFILE or ENFILE as for Devices.
//
// Implements: ibv_open_device.
func OpenDevice(name string) (*Context, error) {
	var c *Context
	var openErr error
	var others []string
	err := eachDevice(func(d *C.struct_ibv_device) bool {
		if n := C.GoString(C.ibv_get_device_name(d)); n != name {
			others = append(others, n)
			return true
		}
		v, err := C.ibv_open_device(d)
		if v == nil {
			openErr = nodeError("ibv_open_device", errnoOf(err), "/dev/infiniband/"+C.GoString(&d.dev_name[0]), "ib_uverbs")
			return false
		}
		if c, openErr = newContext(v, name); openErr != nil {
			C.ibv_close_device(v)
		}
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case openErr != nil:
		return nil, openErr
	case c == nil && others == nil:
		return nil, &Error{Verb: "ibv_open_device", Errno: syscall.ENODEV,
			Advice: fmt.Sprintf("no device %q: this host has no verbs device at all "+
				"(soft-RoCE: rdma link add rxe0 type rxe netdev NAME)", name)}
	case c == nil:
		return nil, &Error{Verb: "ibv_open_device", Errno: syscall.ENODEV,
			Advice: fmt.Sprintf("no device %q: there is %s", name, strings.Join(others, ", "))}
	}
	c.life.open()
	return c, nil
}

func newContext(v *C.struct_ibv_context, name string) (*Context, error) {
	w, err := newWaiter(int(v.async_fd), "async events of "+name)
	if err != nil {
		return nil, err
	}
	c := &Context{c: v, name: name, async: w, rxe: C.int(cbool(C.cv_vendor(v) == vendorRXE))}
	c.life.begin(kindContext)
	return c, nil
}

// Close closes the device. Errors: ErrInUse while an object of the device is open, and always for a
// context of CMID.Context, which librdmacm owns.
//
// Implements: ibv_close_device.
func (c *Context) Close() error {
	c = orZero(c)
	if c.borrows {
		return fmt.Errorf("cverbs: close Context: %w by librdmacm, which owns it", ErrInUse)
	}
	return c.life.close(c.async.close, func() error {
		rc, err := C.ibv_close_device(c.c)
		return rcError("ibv_close_device", rc, err)
	})
}

// Name returns the device's kernel name.
//
// Implements: ibv_get_device_name.
func (c *Context) Name() string { return orZero(c).name }

// NumCompVectors returns the number of completion vectors. CreateCQ accepts the vectors 0 to
// NumCompVectors-1.
//
// Extension.
func (c *Context) NumCompVectors() int {
	c = orZero(c)
	if !c.life.enter() {
		return 0
	}
	defer c.life.leave()
	return int(c.c.num_comp_vectors)
}

// QueryDevice returns the device's limits and properties. It includes the extended properties if
// the device reports them.
//
// Implements: ibv_query_device, ibv_query_device_ex.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	c = orZero(c)
	if !c.life.enter() {
		return DeviceAttr{}, ErrClosed
	}
	defer c.life.leave()
	var x C.struct_ibv_device_attr_ex
	if rc := C.cv_query_device(c.c, &x); rc != 0 {
		return DeviceAttr{}, rcError("ibv_query_device_ex", rc, nil)
	}
	return goDeviceAttr(&x), nil
}

func goDeviceAttr(x *C.struct_ibv_device_attr_ex) DeviceAttr {
	a := &x.orig_attr
	d := DeviceAttr{
		FirmwareVersion: C.GoString(&a.fw_ver[0]), NodeGUID: be64(uint64(a.node_guid)),
		SysImageGUID: be64(uint64(a.sys_image_guid)), MaxMRSize: uint64(a.max_mr_size), PageSizeCap: uint64(a.page_size_cap),
		VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id), HWVersion: uint32(a.hw_ver),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), Caps: DeviceCaps(a.device_cap_flags), MaxSGE: int(a.max_sge),
		MaxSGERD: int(a.max_sge_rd), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr),
		MaxPD: int(a.max_pd), MaxQPRDAtom: int(a.max_qp_rd_atom), MaxEERDAtom: int(a.max_ee_rd_atom),
		MaxResRDAtom: int(a.max_res_rd_atom), MaxQPInitRDAtom: int(a.max_qp_init_rd_atom),
		MaxEEInitRDAtom: int(a.max_ee_init_rd_atom), AtomicCap: AtomicCap(a.atomic_cap), MaxEE: int(a.max_ee),
		MaxRDD: int(a.max_rdd), MaxMW: int(a.max_mw), MaxRawIPv6QP: int(a.max_raw_ipv6_qp),
		MaxRawEthyQP: int(a.max_raw_ethy_qp), MaxMcastGrp: int(a.max_mcast_grp),
		MaxMcastQPAttach: int(a.max_mcast_qp_attach), MaxTotalMcastQP: int(a.max_total_mcast_qp_attach),
		MaxAH: int(a.max_ah), MaxFMR: int(a.max_fmr), MaxMapPerFMR: int(a.max_map_per_fmr), MaxSRQ: int(a.max_srq),
		MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge), MaxPKeys: int(a.max_pkeys),
		LocalCAAckDelay: uint8(a.local_ca_ack_delay), PhysPortCnt: int(a.phys_port_cnt),

		ODPGeneralCaps: ODPCaps(x.odp_caps.general_caps), ODPRCCaps: ODPOps(x.odp_caps.per_transport_caps.rc_odp_caps),
		ODPUCCaps:  ODPOps(x.odp_caps.per_transport_caps.uc_odp_caps),
		ODPUDCaps:  ODPOps(x.odp_caps.per_transport_caps.ud_odp_caps),
		ODPXRCCaps: ODPOps(x.xrc_odp_caps), TimestampMask: uint64(x.completion_timestamp_mask),
		HCACoreClock: uint64(x.hca_core_clock), MaxCQModCount: uint16(x.cq_mod_caps.max_cq_count),
		MaxCQModPeriod: uint16(x.cq_mod_caps.max_cq_period), MaxDMSize: uint64(x.max_dm_size),
		RawPacketCaps: RawPacketCaps(x.raw_packet_caps),
		MaxTSO:        uint32(x.tso_caps.max_tso), TSOQPTypes: QPTypes(x.tso_caps.supported_qpts),
		RSSQPTypes: QPTypes(x.rss_caps.supported_qpts), MaxIndTables: uint32(x.rss_caps.max_rwq_indirection_tables),
		MaxIndTableSize: uint32(x.rss_caps.max_rwq_indirection_table_size),
		HashFields:      HashFields(x.rss_caps.rx_hash_fields_mask),
		HashFunctions:   HashFunction(x.rss_caps.rx_hash_function), MaxWQ: uint32(x.max_wq_type_rq),
		PCIAtomicFAdd:    PCIAtomicSizes(x.pci_atomic_caps.fetch_add),
		PCIAtomicSwap:    PCIAtomicSizes(x.pci_atomic_caps.swap),
		PCIAtomicCmpSwap: PCIAtomicSizes(x.pci_atomic_caps.compare_swap),
		RateLimitMin:     uint32(x.packet_pacing_caps.qp_rate_limit_min),
		RateLimitMax:     uint32(x.packet_pacing_caps.qp_rate_limit_max),
		RateLimitQPTypes: QPTypes(x.packet_pacing_caps.supported_qpts),
	}
	if x.device_cap_flags_ex != 0 {
		d.Caps = DeviceCaps(x.device_cap_flags_ex)
	}
	return d
}

// QueryPort returns the properties of a port. Ports are numbered from 1.
//
// Implements: ibv_query_port.
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	c = orZero(c)
	if !c.life.enter() {
		return PortAttr{}, ErrClosed
	}
	defer c.life.leave()
	var a C.struct_ibv_port_attr
	if rc := C.cv_query_port(c.c, C.uint8_t(port), &a); rc != 0 {
		return PortAttr{}, &Error{Verb: "ibv_query_port", Errno: syscall.Errno(rc), Advice: fmt.Sprintf("port %d", port)}
	}
	return goPortAttr(&a), nil
}

func goPortAttr(a *C.struct_ibv_port_attr) PortAttr {
	return PortAttr{
		State: PortState(a.state), MaxMTU: MTU(a.max_mtu), ActiveMTU: MTU(a.active_mtu), GIDTableLen: int(a.gid_tbl_len),
		CapFlags: PortCaps(a.port_cap_flags), MaxMsgSize: uint32(a.max_msg_sz), BadPKeyCntr: uint32(a.bad_pkey_cntr),
		QKeyViolCntr: uint32(a.qkey_viol_cntr), PKeyTableLen: int(a.pkey_tbl_len), LID: uint16(a.lid),
		SMLID: uint16(a.sm_lid), LMC: uint8(a.lmc), MaxVLNum: uint8(a.max_vl_num), SMSL: uint8(a.sm_sl),
		SubnetTimeout: uint8(a.subnet_timeout), InitTypeReply: uint8(a.init_type_reply), ActiveWidth: uint8(a.active_width),
		ActiveSpeed: uint8(a.active_speed), PhysState: uint8(a.phys_state), LinkLayer: LinkLayer(a.link_layer),
		Flags: uint8(a.flags), CapFlags2: PortCaps2(a.port_cap_flags2),
	}
}

// tableIndex checks the index into a port's table of GIDs or P_Keys. C would truncate an index
// above MaxInt32.
func tableIndex(verb string, index int) error {
	if index < 0 || index > math.MaxInt32 {
		return badArg(verb, "index %d is not in 0..%d", index, math.MaxInt32)
	}
	return nil
}

// QueryGID returns one entry of a port's GID table. Errors: ENODATA for an empty entry.
//
// Implements: ibv_query_gid, ibv_query_gid_ex.
func (c *Context) QueryGID(port uint8, index int) (GIDEntry, error) {
	c = orZero(c)
	if !c.life.enter() {
		return GIDEntry{}, ErrClosed
	}
	defer c.life.leave()
	if err := tableIndex("ibv_query_gid", index); err != nil {
		return GIDEntry{}, err
	}
	var e C.struct_ibv_gid_entry
	if rc, err := C._ibv_query_gid_ex(c.c, C.uint32_t(port), C.uint32_t(index), &e, 0,
		C.sizeof_struct_ibv_gid_entry); rc != 0 {
		return GIDEntry{}, rcError("ibv_query_gid_ex", rc, err)
	}
	return goGID(&e), nil
}

// GIDTable returns the valid GID entries of all ports, with their types and network devices.
//
// Implements: ibv_query_gid_table.
func (c *Context) GIDTable() ([]GIDEntry, error) {
	c = orZero(c)
	if !c.life.enter() {
		return nil, ErrClosed
	}
	defer c.life.leave()
	return gidTable(c.c)
}

// gidTable reads the GID table. The caller keeps the context open.
func gidTable(c *C.struct_ibv_context) ([]GIDEntry, error) {
	var dev C.struct_ibv_device_attr_ex
	if rc := C.cv_query_device(c, &dev); rc != 0 {
		return nil, rcError("ibv_query_device_ex", rc, nil)
	}
	size := 0
	for port := 1; port <= int(dev.orig_attr.phys_port_cnt); port++ {
		var p C.struct_ibv_port_attr
		if rc := C.cv_query_port(c, C.uint8_t(port), &p); rc != 0 {
			return nil, rcError("ibv_query_port", rc, nil)
		}
		size += int(p.gid_tbl_len)
	}
	if size == 0 {
		return nil, nil
	}
	raw := make([]C.struct_ibv_gid_entry, size)
	n, err := C._ibv_query_gid_table(c, &raw[0], C.size_t(size), 0, C.sizeof_struct_ibv_gid_entry)
	if n < 0 {
		return nil, rcError("ibv_query_gid_table", C.int(n), err)
	}
	all := make([]GIDEntry, n)
	for i := range all {
		all[i] = goGID(&raw[i])
	}
	return all, nil
}

// BestGID chooses a port's GID as RankGIDs does, and returns the reason. Errors: ENODATA when the
// port has no usable GID.
//
// Extension.
func (c *Context) BestGID(port uint8) (best GIDEntry, reason string, err error) {
	c = orZero(c)
	all, err := c.GIDTable()
	if err != nil {
		return GIDEntry{}, "", err
	}
	mine := all[:0]
	for _, e := range all {
		if e.Port == port {
			mine = append(mine, e)
		}
	}
	best, reason, ok := RankGIDs(mine)
	if !ok {
		return GIDEntry{}, "", &Error{Verb: "ibv_query_gid_table", Errno: syscall.ENODATA,
			Advice: fmt.Sprintf("%s port %d: %s", c.name, port, reason)}
	}
	return best, reason, nil
}

func goGID(e *C.struct_ibv_gid_entry) GIDEntry {
	g := GIDEntry{GID: GID(e.gid), Index: int(e.gid_index), Port: uint8(e.port_num), Type: GIDType(e.gid_type),
		IfIndex: int(e.ndev_ifindex)}
	if g.IfIndex != 0 {
		if i, err := net.InterfaceByIndex(g.IfIndex); err == nil {
			g.NetDev = i.Name
		}
	}
	return g
}

// be64 turns a 64-bit value in network byte order into host byte order.
func be64(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.BigEndian.Uint64(b[:])
}

func cbool(b bool) C.uint8_t {
	if b {
		return 1
	}
	return 0
}
