//go:build !linux

package firewall

import "errors"

// Read returns an error: only Linux is supported.
func Read() (*Rules, error) { return nil, errors.ErrUnsupported }
