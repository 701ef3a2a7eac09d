package softnic

import (
	"fmt"

	"github.com/godat/godat/udat/internal/fabric"
)

// Invalid is an error about an argument of op.
func Invalid(op, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", op, fmt.Sprintf(format, args...), fabric.ErrInvalid)
}

// Failed is one of package fabric's errors in the words of op.
func Failed(op string, err error) error {
	return fmt.Errorf("%s: %w", op, err)
}
