package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/godat/godat/internal/perf/result"
)

// ioctl requests that create dmabufs.
const (
	udmabufCreate = 0x40187542 // UDMABUF_CREATE
	heapAlloc     = 0xC0184800 // DMA_HEAP_IOCTL_ALLOC
)

type udmabufRequest struct {
	memfd, flags uint32
	offset, size uint64
}

type heapRequest struct {
	size           uint64
	fd, fdFlags    uint32
	heapFlagsUnset uint64
}

// dmabufMemory returns a mapped dmabuf of at least n bytes, its descriptor, and a function that
// unmaps the memory and closes the descriptor.
func dmabufMemory(provider string, n int) (_ []byte, fd int, free func() error, err error) {
	n = (n + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	if provider == result.UDMABuf {
		fd, err = newUDMABuf(n)
	} else {
		fd, err = newHeapDMABuf(provider, n)
	}
	if err != nil {
		return nil, 0, nil, fmt.Errorf("--memory dmabuf:%s: %d bytes: %w", provider, n, err)
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, 0, nil, fmt.Errorf("--memory dmabuf:%s: mmap of %d bytes: %w", provider, n, err)
	}
	return b, fd, func() error { unix.Close(fd); return unix.Munmap(b) }, nil
}

// newUDMABuf creates a dmabuf from memory of this process.
func newUDMABuf(n int) (int, error) {
	const path = "/dev/udmabuf"
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return -1, fmt.Errorf("%w (modprobe udmabuf)", err)
	}
	defer dev.Close()
	mem, err := unix.MemfdCreate("datperf", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(mem)
	if err := unix.Ftruncate(mem, int64(n)); err != nil {
		return -1, err
	}
	if _, err := unix.FcntlInt(uintptr(mem), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return -1, err
	}
	const cloexec = 1
	request := udmabufRequest{memfd: uint32(mem), flags: cloexec, size: uint64(n)}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, dev.Fd(), udmabufCreate, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return -1, fmt.Errorf("%s: %w (its limit of MiB is in /sys/module/udmabuf/parameters/size_limit_mb)", path, errno)
	}
	return int(fd), nil
}

// newHeapDMABuf allocates a dmabuf from one of the kernel's DMA heaps.
func newHeapDMABuf(heap string, n int) (int, error) {
	dev, err := os.OpenFile(filepath.Join("/dev/dma_heap", heap), os.O_RDWR, 0)
	if err != nil {
		all, _ := filepath.Glob("/dev/dma_heap/*")
		return -1, fmt.Errorf("%w (heaps here: %s)", err, strings.Join(append(all, "no others"), ", "))
	}
	defer dev.Close()
	request := heapRequest{size: uint64(n), fdFlags: unix.O_RDWR | unix.O_CLOEXEC}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dev.Fd(), heapAlloc, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return -1, fmt.Errorf("%s: %w", dev.Name(), errno)
	}
	return int(request.fd), nil
}
