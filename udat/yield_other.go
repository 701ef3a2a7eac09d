//go:build !linux

package udat

import "runtime"

// yieldProcessor lets other goroutines run.
func yieldProcessor() { runtime.Gosched() }
