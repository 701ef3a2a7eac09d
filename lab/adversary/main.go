//go:build linux

// Command adversary attacks tcp: it speaks its wire by a code of its own, as each of the two ends,
// and changes one thing at a time of conversations that are legal. The target is another process,
// which looks after its own memory.
//
//	make adversary ADVERSARY='-time 1m'
//	bin/adversary -target bin/adversary-target -seed 17 -count 100    # one session again
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
)

var (
	targetFlag = flag.String("target", "bin/adversary-target", "the target's programs, separated by commas")
	timeFlag   = flag.Duration("time", time.Minute, "how long")
	seedFlag   = flag.Uint64("seed", 0, "the first session; 0: of the clock")
	countFlag  = flag.Int("count", 0, "so many sessions with this seed, instead of the time")
	workers    = flag.Int("workers", 2, "sessions at the same time, each with a target of its own")
	modeFlag   = flag.String("mode", "", "none, sums or tls; empty: they take turns")
	theme      = flag.Int("theme", -1, "only sessions with this theme, 0 to 7: see package pattern")
	keepGoing  = flag.Bool("keep-going", false, "do not end with the first finding")
)

// sessionsOfTarget is how many sessions a target has before another one takes its place.
const sessionsOfTarget = 400

func main() {
	flag.Parse()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) / 1000
	}
	fmt.Printf("adversary: the first seed is %d\n", seed)
	c := &campaign{targets: strings.Split(*targetFlag, ","), seed: seed, end: time.Now().Add(*timeFlag)}
	if *countFlag > 0 {
		c.same, c.left, c.end = true, *countFlag, time.Time{}
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		c.mu.Lock()
		c.stop = true
		c.mu.Unlock()
	}()
	c.run(*workers, *keepGoing)
	fmt.Println(c.summary())
	if len(c.findings) > 0 {
		os.Exit(1)
	}
}

// campaign is many sessions.
type campaign struct {
	targets []string
	end     time.Time // of the campaign; zero: after left sessions

	mu                                 sync.Mutex
	seed                               uint64
	same                               bool // every session has the same seed
	left                               int  // sessions
	stop                               bool
	begun                              time.Time
	sessions, established, changed     int
	sent, got, changes, done, failures int
	findings                           []*outcome
}

func (c *campaign) next() (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop || c.end.IsZero() && c.left == 0 || !c.end.IsZero() && time.Now().After(c.end) {
		return 0, false
	}
	c.left--
	if c.same {
		return c.seed, true
	}
	for c.seed++; *theme >= 0 && c.seed%pattern.Themes != uint64(*theme); {
		c.seed++
	}
	return c.seed, true
}

func (c *campaign) add(o *outcome, keepGoing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions++
	c.sent += o.sent
	c.got += o.got
	c.changes += len(o.changes)
	c.done += o.done
	c.failures += o.failed
	if o.established {
		c.established++
	}
	if len(o.changes) > 0 {
		c.changed++
	}
	if o.finding != nil {
		fmt.Printf("adversary: a finding after %v and %d sessions: %v\n", time.Since(c.begun).Round(time.Millisecond),
			c.sessions, o)
		c.findings = append(c.findings, o)
		c.stop = c.stop || !keepGoing
	}
}

func (c *campaign) summary() string {
	return fmt.Sprintf("adversary: %d sessions in %v, %d established, %d with changes; %d frames sent, %d received, "+
		"%d changes; %d posts done, %d failed; %d findings", c.sessions, time.Since(c.begun).Round(time.Second),
		c.established, c.changed, c.sent, c.got, c.changes, c.done, c.failures, len(c.findings))
}

func (c *campaign) run(workers int, keepGoing bool) {
	c.begun = time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { c.work(i, keepGoing) })
	}
	wg.Wait()
}

// work has sessions, one after the other, with targets that take turns.
func (c *campaign) work(turn int, keepGoing bool) {
	for ; ; turn++ {
		program := c.targets[turn%len(c.targets)]
		mode := pattern.Modes[turn/len(c.targets)%len(pattern.Modes)]
		if *modeFlag != "" {
			mode = pattern.Mode(*modeFlag)
		}
		t, err := start(program, mode)
		if err != nil {
			c.add(&outcome{finding: err}, false)
			return
		}
		for range sessionsOfTarget {
			seed, ok := c.next()
			if !ok {
				t.stop()
				return
			}
			o := session(t, seed)
			if o.finding != nil {
				o.finding = fmt.Errorf("%s %s: %w", program, mode, o.finding)
			}
			c.add(o, keepGoing)
			if o.finding != nil {
				break
			}
		}
		t.stop()
		if c.same {
			continue
		}
		c.mu.Lock()
		fmt.Println(c.summary())
		c.mu.Unlock()
	}
}
