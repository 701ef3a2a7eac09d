package softnic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// NewHook makes the hook of each device that is opened. Package nicfault sets it; in a program it
// is nil.
var NewHook func(*Device) *Hook

// Open initializes d as one opening of the adapter hw. The function newLink makes the link of each
// queue pair.
func (d *Device) Open(hw *Adapter, newLink func(*QP) Link, opts fabric.Options, async func(fabric.AsyncEvent)) error {
	if opts.Retry == fabric.DefaultRetry {
		opts.Retry = 7
	}
	if opts.RNRRetry > 7 || opts.Retry > 7 {
		return Invalid("open", "retry counts %d and %d must be 0 to 7", opts.RNRRetry, opts.Retry)
	}
	d.HW, d.link, d.Opts, d.async = hw, newLink, opts, async
	d.qps, d.Conns = make(map[*QP]struct{}), make(map[*Conn]struct{})
	d.Listeners, d.Requests = make(map[*Listener]struct{}), make(map[*Request]struct{})
	if NewHook != nil {
		d.Hook = NewHook(d)
	}
	d.Events.start()
	hw.Mu.Lock()
	defer hw.Mu.Unlock()
	hw.opened = append(hw.opened, d)
	return nil
}

// Retire begins to close the device. It returns ErrInUse while objects of the device exist.
// Otherwise it forbids the creation of objects, and rejects the connection requests that nobody has
// answered. The caller must call Stop next.
func (d *Device) Retire() error {
	unanswered, err := d.retireSelf()
	for _, r := range unanswered {
		r.Refuse(nil, false)
	}
	return err
}

func (d *Device) retireSelf() (unanswered []*Request, err error) {
	hw := d.HW
	hw.Mu.Lock()
	defer hw.Mu.Unlock()
	if d.closed {
		return nil, Failed("close", fabric.ErrClosed)
	}
	var left []string
	for r, n := range d.count {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s(s)", n, resourceNames[r]))
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("close: still open: %s: %w", strings.Join(left, ", "), fabric.ErrInUse)
	}
	d.closed = true
	hw.opened = slices.DeleteFunc(hw.opened, func(o *Device) bool { return o == d })
	unanswered = slices.Collect(maps.Keys(d.Requests))
	for _, r := range unanswered {
		r.Answered()
	}
	return unanswered, nil
}

// Stop ends the dispatcher. It waits until the function that the dispatcher is running has
// returned.
func (d *Device) Stop() {
	d.Events.stop()
	d.Events.turnAway()
}
