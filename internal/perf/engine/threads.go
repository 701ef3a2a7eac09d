package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/godat/godat/internal/perf/result"
)

// MaxThreads is the largest number of threads of a client.
const MaxThreads = 256

// ThreadsPlan returns an error if the threads cannot share the load of the plan.
func ThreadsPlan(plan *Plan, threads int) error {
	if threads < 1 || threads > MaxThreads {
		return fmt.Errorf("--threads %d: must be from 1 to %d", threads, MaxThreads)
	}
	for _, c := range plan.Cases {
		switch {
		case threads == 1:
		case c.Mode != result.Bandwidth:
			return fmt.Errorf("--threads %d with --mode %s: threads share the load of bandwidth tests only", threads, c.Mode)
		case c.Rate > 0:
			return fmt.Errorf("--threads %d with --rate: an open loop has one thread", threads)
		case c.Iters > 0 && c.Iters < int64(threads):
			return fmt.Errorf("--threads %d with --iters %d: fewer operations than threads", threads, c.Iters)
		}
	}
	return nil
}

// RunThreads runs a plan on several threads. Each thread has its own control connection, queue
// pairs and dispatcher at both ends, and an equal part of the iterations. In each run all threads
// begin together. dial connects a thread, and may connect threads to different ports of the server.
func (cl *Client) RunThreads(ctx context.Context, dial func(thread int) (net.Conn, error), plan Plan,
	threads int) (*result.Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	part := Plan{Repeats: plan.Repeats}
	for _, c := range plan.Cases {
		c.Iters, c.Warmup = c.Iters/int64(threads), c.Warmup/int64(threads)
		part.Cases = append(part.Cases, c)
	}
	together := &barrier{n: threads, open: make(chan struct{}), over: make(chan struct{})}
	docs := make([]*result.Document, threads)
	var wait sync.WaitGroup
	for i := range threads {
		wait.Go(func() {
			conn, err := dial(i)
			if err == nil {
				thread := *cl
				thread.start = together.wait
				thread.Watcher = Watcher{}
				if i == 0 {
					thread.Watcher = Watcher{Begin: cl.Watcher.Begin, Case: cl.Watcher.Case}
				}
				docs[i], err = thread.Run(ctx, conn, part)
			}
			switch {
			case errors.Is(err, ErrFinished): // the other threads end too and keep their results
				together.end()
			case err != nil:
				cancel(err)
			}
		})
	}
	wait.Wait()
	err := context.Cause(ctx)
	if slices.Contains(docs, nil) {
		return nil, err
	}
	if err == nil && together.ended() {
		err = ErrFinished
	}
	doc := docs[0]
	ports := portsOf(docs)
	for _, other := range docs[1:] {
		doc.Runs = doc.Runs[:min(len(doc.Runs), len(other.Runs))]
	}
	for i := range doc.Runs {
		run := &doc.Runs[i]
		run.Client.Counters, run.Server.Counters = countersOf(docs, i)
		for _, other := range docs[1:] {
			addEnd(run.Client, other.Runs[i].Client)
			addEnd(run.Server, other.Runs[i].Server)
		}
		run.Case.Threads, run.Case.Iters, run.Case.Warmup = threads, run.Case.Iters*int64(threads),
			run.Case.Warmup*int64(threads)
		if len(ports) > 1 {
			run.Notes = append(run.Notes, "over several ports: "+strings.Join(ports, ", "))
		}
		for _, end := range []*result.End{run.Client, run.Server} { // each thread has measured the cost of the whole process
			end.Cost.PerMillion /= float64(threads)
			end.Cost.PerGB /= float64(threads)
			end.Intervals = nil
		}
		if f := cl.Watcher.Run; f != nil {
			f(run)
		}
	}
	return doc, err
}

// portsOf returns the pairs of devices between which the threads have measured.
func portsOf(docs []*result.Document) (ports []string) {
	for _, d := range docs {
		if way := d.Client.Device + " to " + d.Server.Device; !slices.Contains(ports, way) {
			ports = append(ports, way)
		}
	}
	return ports
}

// countersOf returns the counters of a run, summed over the ports of the client and over the ports
// of the server. Threads on one port have read the same counters, so each port counts once.
func countersOf(docs []*result.Document, run int) (client, server result.Counters) {
	seen := map[string]bool{}
	add := func(sum result.Counters, name string, end *result.End) result.Counters {
		if seen[name] {
			return sum
		}
		seen[name] = true
		return sum.Add(end.Counters)
	}
	for _, d := range docs {
		client = add(client, "client "+d.Client.Device, d.Runs[run].Client)
		server = add(server, "server "+d.Server.Device, d.Runs[run].Server)
	}
	return client, server
}

// addEnd adds the results of another thread. The time is that of the slowest thread.
func addEnd(sum, part *result.End) {
	sum.Verified += part.Verified
	for _, s := range [][2]*result.Stream{{sum.Initiated, part.Initiated}, {sum.Received, part.Received}} {
		if s[0] != nil && s[1] != nil {
			s[0].Ops += s[1].Ops
			s[0].Bytes += s[1].Bytes
			s[0].Elapsed = max(s[0].Elapsed, s[1].Elapsed)
			s[0].Fill()
		}
	}
}

// barrier makes n goroutines wait for one another, in any number of rounds.
type barrier struct {
	mu      sync.Mutex
	n, here int
	open    chan struct{} // closed when all have come in the current round
	over    chan struct{} // closed: no more rounds
	once    sync.Once
}

func (b *barrier) end() { b.once.Do(func() { close(b.over) }) }

func (b *barrier) ended() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

func (b *barrier) wait(ctx context.Context) error {
	b.mu.Lock()
	open := b.open
	if b.here++; b.here == b.n {
		b.here, b.open = 0, make(chan struct{})
		close(open)
	}
	b.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-b.over:
		return ErrFinished
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
