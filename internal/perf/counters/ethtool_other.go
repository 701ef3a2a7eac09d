//go:build !linux

package counters

import "errors"

func driverStatistics(string) (map[string]uint64, error) { return nil, errors.ErrUnsupported }
