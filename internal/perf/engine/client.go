package engine

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/godat/godat/internal/perf/result"
)

// Watcher receives a plan's progress. Any of its functions may be nil. Calls are serialized, except
// those of Warn.
type Watcher struct {
	Begin    func(client, server *result.Facts)          // once, after both ends have exchanged their facts
	Case     func(n, of int, c *result.Case, repeat int) // before each run
	Interval func(result.Interval)                       // during a run
	Run      func(*result.Run)                           // after each run
	Warn     func(text string)                           // when the server is silent; may overlap another call
}

// Client runs plans against a server.
type Client struct {
	Setup
	Finish  <-chan struct{} // when closed, after Watcher.Begin, the plan ends and the results so far are kept; may be nil
	Watcher Watcher

	start  func(context.Context) error // set by RunThreads; called when a case's connections are established; may be nil
	group  uint64                      // threads of one client have the same number; 0: it has one thread
	memory *budget                     // set on a server that measures to another server
}

// Run runs the plan with the server at the other end of the control connection conn, and closes
// conn. It returns the results. If it returns an error, the document contains the results of the
// runs before the error.
func (cl *Client) Run(ctx context.Context, conn net.Conn, plan Plan) (*result.Document, error) {
	doc := result.NewDocument(cl.Version)
	if err := plan.Validate(); err != nil {
		conn.Close()
		return doc, err
	}
	k := newControl(conn, "server")
	defer k.close()
	err := cl.converse(ctx, k, plan, doc)
	if err != nil && !errors.Is(err, ErrFinished) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		k.fail(err)
	}
	if err != nil {
		if doc.Incomplete == nil { // no run has failed
			doc.Incomplete = &result.Incomplete{Planned: len(plan.Cases) * plan.Repeats}
		}
		doc.Incomplete.Why = err.Error()
	}
	return doc, err
}

func (cl *Client) converse(ctx context.Context, k *control, plan Plan, doc *result.Document) error {
	chosen, err := cl.choose(k.localAddr())
	if err != nil {
		return err
	}
	doc.Client = gatherFacts(chosen, cl.Version, cl.CPU)
	total := len(plan.Cases) * plan.Repeats
	hello := message{Version: cl.Version, Facts: raw(doc.Client), Cases: total, Group: cl.group}
	facts, err := k.greet(ctx, answerTime, hello, cl.Watcher.Warn)
	if err != nil {
		return err
	}
	doc.Server = *facts
	if err := compatible(plan, &doc.Client, &doc.Server); err != nil {
		return err
	}
	if f := cl.Watcher.Begin; f != nil {
		f(&doc.Client, &doc.Server)
	}
	ses := &session{ctl: k, chosen: chosen, counted: countersAt(&chosen), client: true, cpu: cl.CPU, start: cl.start,
		memory: cl.memory, finish: cl.Finish, watch: cl.Watcher.Interval}
	n := 0
	for _, c := range plan.Cases {
		for repeat := range plan.Repeats {
			if closed(cl.Finish) {
				return errors.Join(k.send(message{Kind: msgBye}), ErrFinished)
			}
			n++
			doc.Incomplete = &result.Incomplete{Planned: total, Case: &c}
			began := result.Now()
			run, err := cl.runCase(ctx, ses, c, doc, n, total, repeat+1)
			if run.Started = began; plan.Repeats > 1 {
				run.Repeat = repeat + 1
				doc.Incomplete.Repeat = run.Repeat
			}
			if err != nil {
				doc.Incomplete.Intervals = ses.intervals
				return fmt.Errorf("%s: %w", c.Name(), err)
			}
			doc.Incomplete = nil
			doc.Runs = append(doc.Runs, run)
			if f := cl.Watcher.Run; f != nil {
				f(&doc.Runs[len(doc.Runs)-1])
			}
		}
	}
	err = k.send(message{Kind: msgBye})
	if closed(cl.Finish) {
		err = errors.Join(err, ErrFinished)
	}
	return err
}

func (cl *Client) runCase(ctx context.Context, ses *session, c result.Case, doc *result.Document, n, of,
	repeat int) (result.Run, error) {
	_, notes, err := fit(&c)
	if err != nil {
		return result.Run{}, err
	}
	if most := readDepth(&doc.Client, &doc.Server); most > 0 {
		c.ReadDepth = min(c.ReadDepth, most)
	}
	if f := cl.Watcher.Case; f != nil {
		f(n, of, &c, repeat)
	}
	if err := ses.ctl.send(message{Kind: msgCase, Case: &c}); err != nil {
		return result.Run{}, err
	}
	own, peer, err := ses.run(ctx, &c)
	if err != nil {
		return result.Run{}, err
	}
	if closed(cl.Finish) {
		notes = append(notes, "ended early, by an interrupt")
	}
	run := result.Run{Case: c, Client: own, Server: peer, Notes: notes}
	return run, run.Validate()
}
