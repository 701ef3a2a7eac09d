package errmap

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat/internal/fabric"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Wrap keeps the cause of an error and adds the sentinel of package fabric.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		wrap  func(error) error
		errno syscall.Errno
		want  error
	}{
		{WrapPost, syscall.ENOMEM, fabric.ErrQueueFull},
		{WrapPost, syscall.EINVAL, fabric.ErrInvalid},
		{Wrap, syscall.ENOMEM, fabric.ErrResources},
		{Wrap, syscall.EMFILE, fabric.ErrResources},
		{Wrap, syscall.ENFILE, fabric.ErrResources},
		{Wrap, syscall.ENOSPC, fabric.ErrResources},
		{Wrap, syscall.EAGAIN, fabric.ErrResources},
		{Wrap, syscall.EINVAL, fabric.ErrInvalid},
		{Wrap, syscall.EFAULT, fabric.ErrInvalid},
		{Wrap, syscall.EBUSY, fabric.ErrInUse},
		{Wrap, syscall.EOPNOTSUPP, fabric.ErrNotSupported},
		{Wrap, syscall.ENOSYS, fabric.ErrNotSupported},
		{Wrap, syscall.ENODEV, fabric.ErrDeviceRemoved},
		{WrapAddr, syscall.EADDRINUSE, fabric.ErrAddrInUse},
		{WrapAddr, syscall.EACCES, fabric.ErrAddrDenied},
		{WrapAddr, syscall.EPERM, fabric.ErrAddrDenied},
		{WrapAddr, syscall.EADDRNOTAVAIL, fabric.ErrAddrInvalid},
		{WrapAddr, syscall.EAFNOSUPPORT, fabric.ErrAddrInvalid},
		{WrapAddr, syscall.EINVAL, fabric.ErrAddrInvalid},
		{WrapAddr, syscall.ENODEV, fabric.ErrAddrInvalid},
		{WrapAddr, syscall.ENOMEM, fabric.ErrResources},
	} {
		err := c.wrap(fmt.Errorf("while: %w", &cverbs.Error{Verb: "ibv_verb", Errno: c.errno}))
		assert.Check(t, errors.Is(err, c.want) && errors.Is(err, c.errno), "%v: %v", c.errno, err)
	}
	assert.ErrorIs(t, Wrap(cverbs.ErrClosed), fabric.ErrClosed)
	assert.ErrorIs(t, Wrap(cverbs.ErrInUse), fabric.ErrInUse)
	assert.ErrorIs(t, Wrap(cverbs.ErrNotSupported), fabric.ErrNotSupported)
	assert.ErrorIs(t, Invalid("depth %d", 9), fabric.ErrInvalid)
	assert.ErrorContains(t, Invalid("depth %d", 9), "depth 9")
	other := Wrap(syscall.EIO) // no sentinel is for it
	assert.ErrorIs(t, other, syscall.EIO)
	assert.Equal(t, other.Error(), "verbs: "+syscall.EIO.Error())
	assert.NilError(t, Wrap(nil))
	assert.NilError(t, WrapPost(nil))
	assert.Assert(t, Unreachable(syscall.ENETUNREACH) && !Unreachable(syscall.EINVAL))
}

// TestUnreachable shows which errors mean that there is no path to the peer.
func TestUnreachable(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
		syscall.ETIMEDOUT, syscall.ENODEV, noData, syscall.EADDRNOTAVAIL} {
		assert.Assert(t, Unreachable(&cverbs.Error{Verb: "x", Errno: errno}), "%v", errno)
	}
	for _, err := range []error{nil, fabric.ErrClosed, syscall.EINVAL, syscall.ECONNREFUSED, syscall.EADDRINUSE} {
		assert.Assert(t, !Unreachable(err), "%v", err)
	}
}
