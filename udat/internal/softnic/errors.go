package softnic

import (
	"fmt"

	"github.com/godat/godat/udat/internal/fabric"
)

// Invalid returns an ErrInvalid about an argument of op.
func Invalid(op, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", op, fmt.Sprintf(format, args...), fabric.ErrInvalid)
}

// Failed returns err, an error of package fabric, with the name of the operation op before it.
func Failed(op string, err error) error {
	return fmt.Errorf("%s: %w", op, err)
}
