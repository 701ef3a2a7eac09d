//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

// A process can share objects with another process. The first process passes the descriptor of its
// context (CommandFD) over a Unix socket, and the handles of the objects as numbers. The other
// process imports the context, and then the objects. The processes must agree on which of them
// destroys an object, because afterwards neither process can use it.

// CommandFD returns the context's descriptor for commands. Another process can receive the
// descriptor over a Unix socket, and then import the context (ImportDevice). The context owns the
// descriptor: do not close it.
//
// Extension.
func (c *Context) CommandFD() (int, error) {
	c = orZero(c)
	if !c.life.enter() {
		return 0, ErrClosed
	}
	defer c.life.leave()
	return int(c.c.cmd_fd), nil
}

// Handle returns the domain's number in the kernel, for Context.ImportPD in another process.
//
// Extension.
func (p *PD) Handle() uint32 {
	p = orZero(p)
	if !p.life.enter() {
		return 0
	}
	defer p.life.leave()
	return uint32(p.c.handle)
}

// Handle returns the region's number in the kernel, for PD.ImportMR in another process.
//
// Extension.
func (m *MR) Handle() uint32 {
	m = orZero(m)
	if !m.life.enter() {
		return 0
	}
	defer m.life.leave()
	return uint32(m.c.handle)
}

// Handle returns the memory's number in the kernel, for Context.ImportDM in another process.
//
// Extension.
func (d *DM) Handle() uint32 {
	d = orZero(d)
	if !d.life.enter() {
		return 0
	}
	defer d.life.leave()
	return uint32(d.c.handle)
}

// ImportDevice imports the context of another process. fd is that context's CommandFD, as received
// over a Unix socket. On success the returned context owns fd. Errors: ErrNotSupported if the
// device's driver cannot import; EBADF and others if fd is not the descriptor of a device.
//
// Implements: ibv_import_device.
func ImportDevice(fd int) (*Context, error) {
	if err := load(); err != nil {
		return nil, err
	}
	if err := fdError("ibv_import_device", fd); err != nil {
		return nil, err
	}
	v, err := C.ibv_import_device(C.int(fd))
	if v == nil {
		return nil, &Error{Verb: "ibv_import_device", Errno: errnoOf(err)}
	}
	c, err := newContext(v, C.GoString(C.ibv_get_device_name(v.device)))
	if err != nil {
		C.ibv_close_device(v)
		return nil, err
	}
	c.life.open()
	return c, nil
}

// ImportPD imports a protection domain. The parameter handle is the PD.Handle in the process that
// the context comes from. Errors: ErrNotSupported.
//
// Implements: ibv_import_pd.
func (c *Context) ImportPD(handle uint32) (*PD, error) {
	c = orZero(c)
	p, err := c.newPD("ibv_import_pd", func() (*C.struct_ibv_pd, error) {
		v, err := C.ibv_import_pd(c.c, C.uint32_t(handle))
		return v, err
	})
	if err == nil {
		p.imported = true
	}
	return p, err
}

// ImportMR imports a region of an imported domain. The parameter handle is the MR.Handle in the
// other process. Addr and Len return 0, because the region's address and length are not known here.
// The region's owner must pass them along with the handle. Errors: ErrNotSupported.
//
// Implements: ibv_import_mr.
func (p *PD) ImportMR(handle uint32) (*MR, error) {
	p = orZero(p)
	m := &MR{imported: true, fixed: "another process"}
	err := m.create("ibv_import_mr", p, 0, 0, func() (*C.struct_ibv_mr, error) {
		v, err := C.ibv_import_mr(p.c, C.uint32_t(handle))
		return v, err
	}, &p.life)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// ImportDM imports device memory. The parameter handle is the DM.Handle in the process that the
// context comes from. Errors: ErrNotSupported.
//
// Implements: ibv_import_dm.
func (c *Context) ImportDM(handle uint32) (*DM, error) {
	c = orZero(c)
	d, err := c.newDM("ibv_import_dm", -1, func() (*C.struct_ibv_dm, error) {
		v, err := C.ibv_import_dm(c.c, C.uint32_t(handle))
		return v, err
	})
	if err == nil {
		d.imported = true
	}
	return d, err
}
