package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// linger is the state of a connection after Close, while the rest of its data is being sent.
// Conn.mu guards it.
type linger struct {
	limit   time.Duration // how long lingering may take; 0: Close discards the rest
	waits   bool          // Close waits until the connection has ended
	running bool          // the connection lingers
	blocks  bool          // Close has called dispatcher.block
	stop    func() bool   // stops the timer of limit
	lost    uint64        // bytes that Write has accepted and that have not reached the peer
	done    chan struct{} // closed when lingering ends
}

// lingering has the lingering connections of this process.
var lingering struct {
	mu    sync.Mutex
	ends  map[*linger]chan struct{} // each channel is closed when its connection has ended
	lost  uint64                    // bytes lost by connections that have ended
	count int                       // number of connections that have lost bytes
}

// begin begins the lingering of a connection. The callback stop stops the timer that limits the
// lingering.
func (l *linger) begin(stop func() bool) {
	l.running, l.stop, l.done = true, stop, make(chan struct{})
	lingering.mu.Lock()
	if lingering.ends == nil {
		lingering.ends = make(map[*linger]chan struct{})
	}
	lingering.ends[l] = l.done
	lingering.mu.Unlock()
}

// end ends the lingering. The caller must have set l.lost.
func (l *linger) end() {
	l.running = false
	l.stop()
	lingering.mu.Lock()
	delete(lingering.ends, l)
	if l.lost > 0 {
		lingering.count++
		lingering.lost += l.lost
	}
	lingering.mu.Unlock()
	close(l.done)
}

// Drain waits until all closed connections of this process have delivered their data, or ctx is
// done. If peers may read slowly, call Drain before the process exits. If ctx ends first, the error
// wraps the error of ctx. If connections have lost bytes since the last Drain, the error reports
// how many connections and bytes.
func Drain(ctx context.Context) error {
	lingering.mu.Lock()
	var waits []chan struct{}
	for _, done := range lingering.ends {
		waits = append(waits, done)
	}
	lingering.mu.Unlock()
	var err error
	for i, done := range waits {
		select {
		case <-done:
			continue
		case <-ctx.Done():
			err = fmt.Errorf("rdmanet: up to %d closed connections still have bytes to deliver: %w", len(waits)-i,
				ctx.Err())
		}
		break
	}
	lingering.mu.Lock()
	defer lingering.mu.Unlock()
	if lingering.count > 0 {
		err = errors.Join(err, fmt.Errorf("rdmanet: %d closed connections have lost %d bytes", lingering.count,
			lingering.lost))
		lingering.count, lingering.lost = 0, 0
	}
	return err
}
