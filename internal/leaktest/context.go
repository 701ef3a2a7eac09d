package leaktest

import (
	"context"
	"sync/atomic"
)

// Context is a context that counts the callbacks that wait for its end: those of context.AfterFunc,
// and of contexts that were made from it. A call that leaves one behind leaks memory in a server
// that uses the same context for all calls.
type Context struct {
	context.Context
	callbacks, all atomic.Int32
}

// Count returns a Context that ends with ctx. Its values are hidden, so that package context calls
// AfterFunc.
func Count(ctx context.Context) *Context { return &Context{Context: ctx} }

// Callbacks returns how many callbacks wait now.
func (c *Context) Callbacks() int { return int(c.callbacks.Load()) }

// All returns how many callbacks there have been.
func (c *Context) All() int { return int(c.all.Load()) }

// Value returns nil: see Count.
func (c *Context) Value(any) any { return nil }

// AfterFunc implements what package context looks for in a context.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.all.Add(1)
	c.callbacks.Add(1)
	inner := context.AfterFunc(c.Context, func() {
		c.callbacks.Add(-1)
		f()
	})
	return func() bool {
		stopped := inner()
		if stopped {
			c.callbacks.Add(-1)
		}
		return stopped
	}
}
