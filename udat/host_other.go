//go:build !linux

package udat

import "runtime"

// isShared would say whether memory is shared with other processes: here nobody can tell.
func isShared([]byte) bool { return true }

// yieldProcessor lets other goroutines run.
func yieldProcessor() { runtime.Gosched() }
