//go:build !linux

package soft

import (
	"errors"
	"os"
)

func openRoutes() (*os.File, error) { return nil, errors.ErrUnsupported }

func readRoutes(*os.File, func()) {}
