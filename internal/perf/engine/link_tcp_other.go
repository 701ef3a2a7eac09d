//go:build !linux

package engine

import (
	"errors"

	"github.com/godat/godat/internal/perf/result"
)

func openTCP(*result.Case, layout, choice) (link, error) {
	return nil, errors.New("--layer tcp: only on Linux")
}
