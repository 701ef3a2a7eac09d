package main

import (
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// The performance test of dapltest has one connection, without private data, and one operation,
// which the client does:
//
//  1. the server tells where its memory is;
//  2. the client keeps a pipeline of operations in flight, which shows the bandwidth;
//  3. it does as many one at a time, polling, which shows the latency;
//  4. it sends a message as long as a place, and both disconnect.
type performance struct {
	*connection
}

func (c *connection) postPlace() error {
	return c.ep.PostRecv(c.iov(daplPlaces, daplPlace), 0, udat.CompletionDefault)
}

func (p *performance) run() error {
	size := p.ops[0].size()
	if p.server {
		putPlace(p.bytes(daplOut, daplPlace), p.mem.RMRTriplet(daplOps, size))
		if err := p.send(daplPlace); err != nil {
			return err
		}
	}
	if _, err := p.received(daplPlace); err != nil || p.server {
		return err
	}
	to := place(p.bytes(daplPlaces, daplPlace), size)
	start := time.Now()
	if err := p.pipelined(to); err != nil {
		return err
	}
	many := time.Since(start)
	p.next = poll
	start = time.Now()
	for range p.iterations {
		if err := p.done(p.begin(to)); err != nil {
			return err
		}
	}
	one := time.Since(start) / time.Duration(p.iterations)
	fmt.Printf("%.0f operations/s, %.1f MB/s; one at a time: %v\n", float64(p.iterations)/many.Seconds(),
		float64(size)*float64(p.iterations)/many.Seconds()/1e6, one)
	return p.send(daplPlace)
}

func (p *performance) begin(to udat.RMRTriplet) error {
	return p.post(p.ops[0], p.iov(daplOps, p.ops[0].size()), to)
}

// pipelined does the operations with as many in flight as asked for.
func (p *performance) pipelined(to udat.RMRTriplet) error {
	posted := min(p.pipeline, p.iterations, daplDeepest)
	for range posted {
		if err := p.begin(to); err != nil {
			return err
		}
	}
	for range p.iterations {
		if _, err := p.await(p.requests, udat.EventDTOCompletion); err != nil {
			return err
		}
		if posted < p.iterations {
			posted++
			if err := p.begin(to); err != nil {
				return err
			}
		}
	}
	return nil
}
