package main

// mark is a breakpoint. It tells the tracer where to begin or end counting.
func mark()
