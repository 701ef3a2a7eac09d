package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// RunThreads runs a plan on several threads. Each thread has its own control connection, and at
// both ends its own queue pairs and dispatcher. The iterations are divided evenly among the
// threads. In each run all threads begin together. The function dial connects a thread. It may
// connect threads to different ports of the server.
func (cl *Client) RunThreads(ctx context.Context, dial func(thread int) (net.Conn, error), plan Plan,
	threads int) (*result.Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	together := &barrier{n: threads, open: make(chan struct{}), over: make(chan struct{})}
	all := &threadRuns{watcher: cl.Watcher, facts: make([]*result.Document, threads), runs: make([][]result.Run, threads)}
	docs := make([]*result.Document, threads)
	group := rand.Uint64() | 1
	var wait sync.WaitGroup
	for i := range threads {
		wait.Go(func() {
			conn, err := dial(i)
			if err == nil {
				thread := *cl
				thread.group = group
				thread.start = together.wait
				thread.Watcher = Watcher{
					Begin: func(client, server *result.Facts) { all.begin(i, client, server) },
					Run:   func(run *result.Run) { all.add(i, run) },
				}
				if i == 0 {
					thread.Watcher.Case, thread.Watcher.Warn = cl.Watcher.Case, cl.Watcher.Warn
				}
				docs[i], err = thread.Run(ctx, conn, plan.part(i, threads))
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
	if err == nil && closed(together.over) {
		err = ErrFinished
	}
	doc := docs[0]
	doc.Runs = all.whole
	return doc, err
}

// part returns the plan for one thread.
func (p *Plan) part(thread, threads int) Plan {
	share := func(n int64) int64 { return (n + int64(threads-1-thread)) / int64(threads) }
	part := Plan{Repeats: p.Repeats}
	for _, c := range p.Cases {
		c.Iters, c.Warmup = share(c.Iters), share(c.Warmup)
		part.Cases = append(part.Cases, c)
	}
	return part
}

// threadRuns adds up the threads' runs. When all threads have measured a run, it passes the sum to
// the watcher.
type threadRuns struct {
	watcher Watcher

	mu    sync.Mutex
	facts []*result.Document // facts of each thread's ends, in a document without runs
	runs  [][]result.Run     // runs of each thread
	whole []result.Run
}

// begin records the facts of the two ends between which a thread measures.
func (g *threadRuns) begin(thread int, client, server *result.Facts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts[thread] = &result.Document{Client: *client, Server: *server}
	if f := g.watcher.Begin; f != nil && thread == 0 {
		f(client, server)
	}
}

func (g *threadRuns) add(thread int, run *result.Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[thread] = append(g.runs[thread], *run)
	for _, runs := range g.runs {
		if len(runs) == len(g.whole) {
			return
		}
	}
	g.whole = append(g.whole, g.sum(len(g.whole)))
	if f := g.watcher.Run; f != nil {
		f(&g.whole[len(g.whole)-1])
	}
}

// sum adds up run n of all threads, and returns the result as one run.
func (g *threadRuns) sum(n int) result.Run {
	run, threads := g.runs[0][n], len(g.runs)
	run.Client.Counters, run.Server.Counters = g.counters(n)
	for _, other := range g.runs[1:] {
		run.Case.Iters += other[n].Case.Iters
		run.Case.Warmup += other[n].Case.Warmup
		addEnd(run.Client, other[n].Client)
		addEnd(run.Server, other[n].Server)
	}
	run.Case.Threads = threads
	if ports := portsOf(g.facts); len(ports) > 1 {
		run.Notes = append(run.Notes, "over several ports: "+strings.Join(ports, ", "))
	}
	for _, end := range []*result.End{run.Client, run.Server} { // each thread has measured the cost of the whole process
		end.Cost.PerMillion /= float64(threads)
		end.Cost.PerGB /= float64(threads)
		end.Intervals = nil
	}
	return run
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

// counters returns the counters of run n, summed over the client's ports and over the server's
// ports. Threads on the same port have read the same counters, so each port counts once.
func (g *threadRuns) counters(n int) (client, server result.Counters) {
	seen := map[string]bool{}
	add := func(sum result.Counters, name string, end *result.End) result.Counters {
		if seen[name] {
			return sum
		}
		seen[name] = true
		return sum.Add(end.Counters)
	}
	for i, d := range g.facts {
		client = add(client, "client "+d.Client.Device, g.runs[i][n].Client)
		server = add(server, "server "+d.Server.Device, g.runs[i][n].Server)
	}
	return client, server
}

// addEnd adds the results of another thread to sum. The elapsed time becomes that of the slowest
// thread.
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
	open    chan struct{} // closed when all goroutines have called wait in the current round
	over    chan struct{} // closed when there are no more rounds
	once    sync.Once
}

func (b *barrier) end() { b.once.Do(func() { close(b.over) }) }

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
