//go:build !linux

package udat

// isShared would report whether memory is shared with other processes, which is not known here.
func isShared([]byte) bool { return true }
