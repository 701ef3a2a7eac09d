package result

import (
	"fmt"
	"strings"
)

// Step is one operation of a transaction. The step completes before the next step of the same end
// begins.
type Step struct {
	Op     string // send, write or read
	Size   int
	Server bool // the server executes it
}

// DefaultSteps is the default transaction: a request, data in both directions, and an answer.
const DefaultSteps = "send:256,write:4K,read:4K,server-send:256"

// name returns the step in the syntax of --steps, with the size in bytes.
func (s *Step) name() string {
	op := s.Op
	if s.Server {
		op = "server-" + op
	}
	return fmt.Sprintf("%s:%d", op, s.Size)
}

// maxSteps is the largest number of steps of a transaction.
const maxSteps = 64

// Transaction parses c.Steps, a list of steps separated by commas. A step consists of a word (send,
// write or read), a colon and a size. The prefix "server-" makes the server execute the step.
func (c *Case) Transaction() ([]Step, error) {
	var steps []Step
	asked := false
	for text := range strings.SplitSeq(c.Steps, ",") {
		op, size, _ := strings.Cut(strings.TrimSpace(text), ":")
		var s Step
		s.Op, s.Server = strings.CutPrefix(op, "server-")
		if s.Op != Send && s.Op != Write && s.Op != Read {
			return nil, fmt.Errorf("--steps: step %q: must be send, write or read, or server-send and so on, with a size: "+
				"send:256", text)
		}
		var err error
		if s.Size, err = ParseBytes(size); err != nil {
			return nil, fmt.Errorf("--steps: step %q: %w", text, err)
		}
		if s.Server && !asked {
			return nil, fmt.Errorf("--steps: step %q: the server does nothing before a send of the client's has come", text)
		}
		asked = asked || s.Op == Send && !s.Server
		steps = append(steps, s)
	}
	if len(steps) > maxSteps {
		return nil, fmt.Errorf("--steps: %d steps, the limit is %d", len(steps), maxSteps)
	}
	return steps, nil
}

// validateSteps returns an error if a step is invalid or larger than c.Size.
func (c *Case) validateSteps() error {
	steps, err := c.Transaction()
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.Size > c.Size {
			return fmt.Errorf("--steps: step %q: larger than the largest step, which is %d bytes by the size_bytes of the case",
				s.name(), c.Size)
		}
	}
	return nil
}

// completeSteps sets the default steps if there are none, and sets c.Size to the size of the
// largest step. It ignores invalid steps, which Validate reports.
func (c *Case) completeSteps() {
	if c.Steps == "" {
		c.Steps = DefaultSteps
	}
	c.Size = 1
	if steps, err := c.Transaction(); err == nil {
		for _, s := range steps {
			c.Size = max(c.Size, s.Size)
		}
	}
}

// Payload returns the number of payload bytes of one operation, or of one whole transaction.
func (c *Case) Payload() int64 {
	if c.Test != Transaction {
		return int64(c.Size)
	}
	n := int64(0)
	steps, _ := c.Transaction()
	for _, s := range steps {
		n += int64(s.Size)
	}
	return n
}
