//go:build !linux

package udat

// isShared would say whether memory is shared with other processes: here nobody can tell.
func isShared([]byte) bool { return true }
