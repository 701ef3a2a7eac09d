//go:build dat2

package main

// #include "shim.h"
import "C"

import "unsafe"

// godat_call runs a function that cgo exports, of cgo's arguments, with room on the goroutine's
// stack: a signal that comes while a thread of the program runs Go finds that stack, unless the
// handler asks for another. The handler has at least 160 KiB.
//
//export godat_call
func godat_call(function, arguments unsafe.Pointer) {
	closure := unsafe.Pointer(&function) // of Go's layout: its first word is the code
	weigh(false, *(*func(unsafe.Pointer))(unsafe.Pointer(&closure)), arguments)
}

// weigh makes a call with 72 KiB of the stack in use. The collector halves a stack of which less
// than a quarter is in use.
//
//go:noinline
func weigh(fill bool, call func(unsafe.Pointer), arguments unsafe.Pointer) {
	if fill { // never: the frame alone counts
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
