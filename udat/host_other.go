//go:build !linux

package udat

import "math"

// hostMemory would be the size of this host's memory, which is not known here.
func hostMemory() uint64 { return math.MaxUint64 }

// isShared would report whether memory is shared with other processes, which is not known here.
func isShared([]byte) bool { return true }
