package main

// mark is a breakpoint: it tells the tracer where counting begins, and where it ends.
func mark()
