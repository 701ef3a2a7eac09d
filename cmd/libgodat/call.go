//go:build dat2

package main

// #include "shim.h"
import "C"

import "unsafe"

// godat_call runs a function that cgo exports, with the arguments that cgo passes. It first makes
// room on the goroutine's stack. If a signal arrives while a thread of the program runs Go, the
// handler runs on that stack, unless the handler has a stack of its own. The handler has at least
// 160 KiB, also before there is room: the garbage collector halves a stack of which less than a
// quarter is in use, once before each call at most.
//
//export godat_call
func godat_call(function, arguments unsafe.Pointer) {
	closure := unsafe.Pointer(&function) // a closure in Go's layout: its first word points to the code
	room(false)
	weigh(false, *(*func(unsafe.Pointer))(unsafe.Pointer(&closure)), arguments)
}

// room makes the stack grow to 512 KiB.
//
//go:noinline
func room(fill bool) {
	if fill { // never true; what counts is the size of the frame
		var a, b, c [100 << 10]byte // the compiler keeps no variable of more than 128 KiB on the stack
		touch(a[:], b[:], c[:])
	}
}

// weigh makes a call while 144 KiB of the stack are in use, so that it is not halved.
//
//go:noinline
func weigh(fill bool, call func(unsafe.Pointer), arguments unsafe.Pointer) {
	if fill {
		var a, b [72 << 10]byte
		touch(a[:], b[:])
	}
	call(arguments)
}

//go:noinline
func touch(frames ...[]byte) {
	for _, f := range frames {
		f[0]++
	}
}
