//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"

	"github.com/godat/godat/udat"
)

// debug makes the function code print the text of errors, which a DAT_RETURN cannot carry. Errors
// that only report that there is no event are not printed.
var debug = os.Getenv("GODAT_DEBUG") != ""

// code returns the DAT_RETURN of DAT 2.0 for an error of udat.
func code(err error) C.DAT_RETURN {
	if err == nil {
		return C.DAT_SUCCESS
	}
	e, ok := err.(*udat.Error) // errors.As costs as much as an empty dequeue
	if !ok {
		e = inside(err)
	}
	if debug && e.Type != udat.QueueEmpty && e.Type != udat.TimeoutExpired && e.Type != udat.InterruptedCall {
		fmt.Fprintln(os.Stderr, "godat:", err)
	}
	return failure(e.Type, e.Subtype)
}

// The function inside returns the error of udat that err wraps, or InternalError if it wraps none.
// It is a separate function, because errors.As moves its target to the heap.
func inside(err error) *udat.Error {
	var e *udat.Error
	if !errors.As(err, &e) {
		e = &udat.Error{Type: udat.InternalError}
	}
	return e
}

// failure returns the DAT_RETURN of DAT 2.0 for a type and a subtype. udat uses the numbers of DAT
// 1.2. The headers of DAT 2.0 insert further names, so that the numbers of later names differ.
func failure(t udat.ReturnType, s udat.Subtype) C.DAT_RETURN {
	switch {
	case s > udat.SubStateSRQInUse:
		s += 2 // DAT_INVALID_HANDLE_CSP, DAT_INVALID_STATE_SRQ_SHUTDOWN
	case s > udat.SubHandleSRQ:
		s++
	}
	return C.DAT_CLASS_ERROR | C.DAT_RETURN(t) | C.DAT_RETURN(s)
}

func badHandle(s udat.Subtype) C.DAT_RETURN { return failure(udat.InvalidHandle, s) }

// badArgument returns the error of argument n, counted from 1.
func badArgument(n int) C.DAT_RETURN {
	return failure(udat.InvalidParameter, udat.SubArg1+udat.Subtype(n-1))
}
