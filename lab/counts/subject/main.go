// Command subject repeats one operation for lab/counts. Breakpoints tell lab/counts where to begin
// and end counting. Usage: subject LAYER OPERATION. With -allocs the command prints instead how
// many allocations one operation makes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"runtime"
)

const (
	depth   = 64 // capacity of each queue; half of it is in use at most
	burst   = 32 // completions taken by one poll of an exchange
	size    = 64 // bytes of each message
	regions = 64 // regions at most; the tracer ends the program when it has enough
	warmUp  = 32 // uncounted regions before each of them
)

// operation is the operation to count. A region is one call of the function do, which performs n
// operations, and the tracer counts during regions. The function prepare, unless nil, is called
// before each region, and does what the n operations need. The function settle, unless nil, is
// called after the region, and takes the completions that are left.
type operation struct {
	do, prepare, settle func(n int)
}

// layers maps each layer to the function that makes the operations of the layer. The argument n is
// the number of operations in one call of operation.do.
var layers = map[string]func(name string, n int) (operation, error){
	"cverbs":  ofCverbs,
	"udat":    ofUdat,
	"rdmanet": ofRdmanet,
	"tcp":     ofTCPDevice,
	"TCP":     ofTCP,
}

func main() {
	allocs := flag.Bool("allocs", false, "print the allocations of one operation")
	n := flag.Int("n", 16, "operations between two marks")
	flag.Parse()
	runtime.LockOSThread()
	layer := layers[flag.Arg(0)]
	if layer == nil || *n < 1 {
		log.Fatal("usage: subject [-allocs] [-n NUMBER] cverbs|udat|rdmanet|tcp|TCP OPERATION")
	}
	op, err := layer(flag.Arg(1), *n)
	check(err)
	if *allocs {
		fmt.Println(op.allocations(*n))
		return
	}
	for range regions {
		for range warmUp { // again before each region: a traced region is so slow that the library sees idle queues
			op.region(*n, func() {})
		}
		op.region(*n, mark)
	}
}

func (o *operation) region(n int, mark func()) {
	if o.prepare != nil {
		o.prepare(n)
	}
	mark()
	o.do(n)
	mark()
	if o.settle != nil {
		o.settle(n)
	}
}

// allocations returns the mean number of allocations of an operation. It counts only during calls
// of do.
func (o *operation) allocations(n int) float64 {
	const rounds = 100
	var before, after runtime.MemStats
	var mallocs uint64
	for round := range rounds + warmUp {
		o.region(n, func() {
			before = after
			runtime.ReadMemStats(&after)
		})
		if round >= warmUp {
			mallocs += after.Mallocs - before.Mallocs
		}
	}
	return float64(mallocs/uint64(n*rounds/10)) / 10
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func errUnknown(layer, name string) error {
	return errors.New(layer + " has no operation " + name)
}
