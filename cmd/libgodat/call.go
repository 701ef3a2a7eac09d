//go:build dat2

package main

// #include "shim.h"
import "C"

import "unsafe"

// godat_call runs a function that cgo exports, with the arguments that cgo passes. It first makes
// room on the goroutine's stack. If a signal arrives while a thread of the program runs Go, the
// handler runs on that stack, unless the handler has a stack of its own. The handler has at least
// 160 KiB.
//
//export godat_call
func godat_call(function, arguments unsafe.Pointer) {
	closure := unsafe.Pointer(&function) // a closure in Go's layout: its first word points to the code
	weigh(false, *(*func(unsafe.Pointer))(unsafe.Pointer(&closure)), arguments)
}

// weigh makes a call while 72 KiB of the stack are in use, because the garbage collector halves a
// stack of which less than a quarter is in use.
//
//go:noinline
func weigh(fill bool, call func(unsafe.Pointer), arguments unsafe.Pointer) {
	if fill { // never true; what counts is the size of the frame
		var frame [72 << 10]byte
		touch(frame[:])
	}
	room(fill)
	call(arguments)
}

// room makes the stack grow to 256 KiB.
//
//go:noinline
func room(fill bool) {
	if fill {
		var frame [112 << 10]byte
		touch(frame[:])
	}
}

//go:noinline
func touch(frame []byte) { frame[0]++ }
