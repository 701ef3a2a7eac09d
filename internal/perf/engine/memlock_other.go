//go:build !linux

package engine

func memlock() int64 { return 0 }
