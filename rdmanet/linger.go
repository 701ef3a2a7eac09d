package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// linger is the end of a connection that its program has closed: what was written goes out in the
// background. Conn.mu guards it.
type linger struct {
	limit   time.Duration // how long it may take; 0: what has not been sent is dropped
	waits   bool          // Close waits that long
	running bool          // the connection lingers
	stop    func() bool   // of the timer
	lost    uint64        // bytes that Write has taken and that have not reached the peer
	done    chan struct{} // closed at the end
}

// lingering has the connections of this process that linger.
var lingering struct {
	mu    sync.Mutex
	ends  map[*linger]chan struct{} // each closed when that connection is done
	lost  uint64                    // bytes lost by those that are done
	count int                       // how many of them have lost bytes
}

// begin makes a connection linger; stop ends the timer that bounds it.
func (l *linger) begin(stop func() bool) {
	l.running, l.stop, l.done = true, stop, make(chan struct{})
	lingering.mu.Lock()
	if lingering.ends == nil {
		lingering.ends = make(map[*linger]chan struct{})
	}
	lingering.ends[l] = l.done
	lingering.mu.Unlock()
}

// end ends the lingering; lost has been set.
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

// Drain waits until the connections that this process has closed have delivered what was written:
// call it before the process ends if peers may be slow to read. Its error, or that of ctx, says how
// much has been lost since the last call.
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
