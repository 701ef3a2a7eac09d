//go:build dat2

package main

// #include "shim.h"
import "C"

import "unsafe"

// godat_call runs a function that cgo exports, with the arguments that cgo passes. It first makes
// room on the goroutine's stack. A signal may arrive while a thread of the program runs Go, and a
// signal handler without an alternate stack then runs on the goroutine's stack. The function room
// makes the stack large enough for such a handler. Between two calls the garbage collector may
// halve the stack, but at most once. So the handler has at least 160 KiB at any time.
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

// weigh makes a call while 144 KiB of the stack are in use, so that the garbage collector does not
// halve the stack.
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
