// Package faultfabric decorates any fabric, and counts, delays, drops or fails the calls that a
// test selects. The tests of package udat pass the decorated fabric to Open.
//
// A [Script] decorates a fabric and holds the rules. A rule selects calls by their kind, by the
// object that they are made on, and by their number, and says what happens to them:
//
//	var script faultfabric.Script
//	dev, err := script.Wrap(fab).Open("mem0", opts, async)
//	...
//	hidden := script.On(faultfabric.Poll, cq).Drop()              // cq seems empty
//	hidden.Stop()                                                 // cq shows what has come
//	script.On(faultfabric.Arm, cq).Times(1).Fail(err)             // the next Arm fails
//	script.On(faultfabric.PostSend).Skip(2).Delay(time.Second)    // all posts are slow from the third on
//	polls := script.On(faultfabric.Poll, cq).Count()              // polls.Calls(), polls.Last()
//
// A rule names objects that the decorated device has created. The decorator unwraps an object
// before it calls the fabric. While there is no rule, a call costs one more atomic load, and no
// allocation.
//
// All methods are safe for concurrent use. The functions that are passed to Before and After may
// call the fabric, and may add and stop rules. A rule applies to calls that begin after it was
// added. A call that is under way when the rule is stopped may still be affected. For Disconnect
// and ConnEvent too, a rule names the queue pair: the object that CreateQP has returned.
package faultfabric

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Call is a kind of call.
type Call uint8

// The calls, with the object that each is made on and the argument that [Rule.Last] reports.
const (
	Poll       Call = iota // of a CQ; the number of polls asked for
	Arm                    // of a CQ; 1 for solicited completions only
	Wait                   // of a CQ
	Resize                 // of a CQ or SRQ; the depth
	Limit                  // of an SRQ; the limit
	PostSend               // of a QP; the number of requests
	PostRecv               // of a QP or SRQ; the number of requests
	Bind                   // of a QP
	SetError               // of a QP
	Connect                // of the QP that connects
	Accept                 // of the QP that accepts
	Reject                 // of the device
	Disconnect             // of the QP of the connection
	ConnEvent              // of the QP of the connection, when its handler is called; the kind of the event
	Async                  // of the device, when its handler of asynchronous events is called; the kind of the event
	Listen                 // of the device; the port
	CreateCQ               // of the device; the depth
	CreateQP               // of the device
	CreateSRQ              // of the device; the depth
	AllocPD                // of the device
	RegMR                  // of the device; the length
	DeregMR                // of the device; the length
	AllocMW                // of the device
	Close                  // of a device, PD, CQ, QP, SRQ or Conn
	calls
)

var names = [calls]string{
	"Poll", "Arm", "Wait", "Resize", "Limit", "PostSend", "PostRecv", "Bind", "SetError", "Connect", "Accept", "Reject",
	"Disconnect", "ConnEvent", "Async", "Listen", "CreateCQ", "CreateQP", "CreateSRQ", "AllocPD", "RegMR", "DeregMR",
	"AllocMW", "Close",
}

// String returns the name of the constant.
func (c Call) String() string { return names[c] }

// droppable lists the calls that a rule can drop: the rule reports success although the fabric is
// not called.
var droppable = []Call{Poll, Arm, Wait, Resize, PostSend, PostRecv, SetError, Reject, Disconnect, ConnEvent, Async}

// Script holds the rules of the devices that are opened through it. The zero value has no rules.
type Script struct {
	// Attr changes the attributes that the devices report; nil changes nothing. Set it before Wrap.
	// The devices themselves do not change: an operation that the changed attributes deny still
	// works.
	Attr func(*fabric.Attr)

	mu    sync.Mutex
	rules atomic.Pointer[[]*Rule] // the slice is replaced, never changed; nil: no rules
}

// Selection is a set of calls for which a rule can be made.
type Selection struct {
	script *Script
	call   Call
	of     []any
	with   []int
	skip   int64
	times  int64 // 0: no limit
}

// On selects the calls of a kind that are made on one of the objects. Without objects it selects
// the calls on every object.
func (s *Script) On(call Call, objects ...any) Selection {
	return Selection{script: s, call: call, of: objects}
}

// With selects only the calls whose argument is one of args. The constants of type Call list the
// argument of each call.
func (s Selection) With(args ...int) Selection { s.with = args; return s }

// Skip makes the rule ignore the next n calls.
func (s Selection) Skip(n int) Selection { s.skip = int64(n); return s }

// Times selects only the next n calls, after those that Skip makes the rule ignore.
func (s Selection) Times(n int) Selection { s.times = int64(n); return s }

// Count counts the calls and lets them pass.
func (s Selection) Count() *Rule { return s.add(effect{}) }

// Fail makes the calls return err without reaching the fabric. It panics for ConnEvent and Async,
// because a handler returns no error.
func (s Selection) Fail(err error) *Rule {
	if s.call == ConnEvent || s.call == Async {
		panic(fmt.Sprintf("faultfabric: %v cannot fail", s.call))
	}
	return s.add(effect{err: err})
}

// Drop makes the calls return at once without reaching the fabric, as if they were done: Poll finds
// nothing, Wait returns as if woken, PostSend and PostRecv accept all requests, and handlers are
// not called. Drop panics for Limit, for Bind, for Close, and for calls that return an object.
func (s Selection) Drop() *Rule {
	if !slices.Contains(droppable, s.call) {
		panic(fmt.Sprintf("faultfabric: %v cannot be dropped", s.call))
	}
	return s.add(effect{drop: true})
}

// Delay delays the calls by d. A delay of ConnEvent or Async also delays all later events of the
// device.
func (s Selection) Delay(d time.Duration) *Rule { return s.add(effect{delay: d}) }

// Before calls f before each call, in the caller's goroutine.
func (s Selection) Before(f func()) *Rule { return s.add(effect{before: f}) }

// After calls f after each call, in the caller's goroutine and before the caller learns the
// outcome.
func (s Selection) After(f func()) *Rule { return s.add(effect{after: f}) }

// effect is what happens to a call.
type effect struct {
	err           error
	drop          bool
	delay         time.Duration
	before, after func()
}

// Rule says what happens to the selected calls, and counts them.
type Rule struct {
	calls Selection
	effect
	seen, hits, last atomic.Int64
}

func (s Selection) add(e effect) *Rule {
	rule := &Rule{calls: s, effect: e}
	s.script.edit(func(rules []*Rule) []*Rule { return append(rules, rule) })
	return rule
}

// Stop ends the rule. Calls and Last still return what they returned before.
func (r *Rule) Stop() {
	r.calls.script.edit(func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(rules,
			func(x *Rule) bool { return x == r })
	})
}

// Calls returns the number of calls that the rule has applied to.
func (r *Rule) Calls() int { return int(r.hits.Load()) }

// Last returns the argument of the latest call that the rule has applied to, or 0 if such calls
// have no argument. The constants of type Call list the argument of each call.
func (r *Rule) Last() int { return int(r.last.Load()) }

// edit replaces the rules by the result of the function change, whose argument is a copy of the
// rules.
func (s *Script) edit(change func([]*Rule) []*Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rules []*Rule
	if now := s.rules.Load(); now != nil {
		rules = slices.Clone(*now)
	}
	if rules = change(rules); len(rules) == 0 {
		s.rules.Store(nil)
		return
	}
	s.rules.Store(&rules)
}

// A call of applies reports whether the rule applies to a call, and counts the call if it does.
func (r *Rule) applies(call Call, object any, arg int) bool {
	c := &r.calls
	switch {
	case c.call != call, len(c.of) > 0 && !slices.Contains(c.of, object), len(c.with) > 0 && !slices.Contains(c.with, arg):
		return false
	}
	n := r.seen.Add(1) - c.skip
	if n < 1 || c.times > 0 && n > c.times {
		return false
	}
	r.last.Store(int64(arg))
	r.hits.Add(1)
	return true
}

// verdict is the joint effect of the rules on one call.
type verdict struct {
	err   error
	drop  bool
	after []func()
}

// enter applies the rules to a call that begins. It waits for the rules' delays, and runs their
// Before functions. If several rules fail or drop the call, the first of them decides.
func (s *Script) enter(call Call, object any, arg int) verdict {
	rules := s.rules.Load()
	if rules == nil {
		return verdict{}
	}
	var v verdict
	for _, r := range *rules {
		if !r.applies(call, object, arg) {
			continue
		}
		if r.delay > 0 {
			time.Sleep(r.delay)
		}
		if r.before != nil {
			r.before()
		}
		if r.after != nil {
			v.after = append(v.after, r.after)
		}
		if v.err == nil && !v.drop {
			v.err, v.drop = r.err, r.drop
		}
	}
	return v
}

// leave runs the After functions of the rules that apply to the call.
func (v *verdict) leave() {
	for _, do := range v.after {
		do()
	}
}

// do calls fn, which makes the call, unless a rule fails or drops the call.
func (s *Script) do(call Call, object any, arg int, fn func() error) error {
	_, err := result(s, call, object, arg, struct{}{}, func() (struct{}, error) { return struct{}{}, fn() })
	return err
}

// create is like do, for a call that returns an object. If a rule drops the call, it returns the
// zero value.
func create[T any](s *Script, call Call, object any, arg int, fn func() (T, error)) (T, error) {
	var none T
	return result(s, call, object, arg, none, fn)
}

// result is like do, for a call that returns a value. If a rule drops the call, it returns
// ifDropped.
func result[T any](s *Script, call Call, object any, arg int, ifDropped T, fn func() (T, error)) (T, error) {
	v := s.enter(call, object, arg)
	var value T
	err := v.err
	switch {
	case err != nil:
	case v.drop:
		value = ifDropped
	default:
		value, err = fn()
	}
	v.leave()
	return value, err
}
