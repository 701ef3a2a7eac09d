//go:build !linux

package verbsfabric

import (
	"errors"
	"os"
)

func openRoutes() (*os.File, error) { return nil, errors.ErrUnsupported }

func readRoutes(*os.File, func()) {}
