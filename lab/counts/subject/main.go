// Command subject repeats one operation between two marks, for lab/counts: subject LAYER OPERATION.
// With -allocs it prints what Go allocates for one operation instead.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"runtime"
)

const (
	depth   = 64 // operations that a queue has room for, half of them free
	burst   = 32 // completions taken at once in an exchange
	size    = 64 // bytes of each
	regions = 8  // that are counted
	warmUp  = 32 // regions before each of them
)

// operation is what is counted. Before each region prepare makes n of do possible, and after it
// settle takes what they have left behind. Both may be nil.
type operation struct {
	do, prepare, settle func(n int)
}

// layers have what makes an operation; n is the number between two marks.
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
		for range warmUp { // each time: under the tracer a region takes so long that the library finds its queues idle
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

// allocations returns the mean of many operations, without what goes on beside them.
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
