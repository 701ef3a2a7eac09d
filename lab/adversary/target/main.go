//go:build linux

// Command target is the program that the adversary attacks: it uses the public API of udat, and
// looks after its memory and its completions. It is driven by lines on its standard input, and
// answers with JSON.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
	"github.com/godat/godat/udat"
)

func main() {
	opts := []udat.Option{udat.WithRNRRetry(7)}
	switch mode := pattern.Mode(os.Args[1]); mode {
	case pattern.TLS:
		opts = append(opts, udat.WithTLS(must(pattern.Config())))
	default:
		opts = append(opts, udat.WithChecksums(mode == pattern.Sums))
	}
	ia := must(udat.Open("tcp:127.0.0.1", opts...))
	t := &target{ia: ia, arena: newArena(ia)}
	t.evd = must(ia.CreateEVD(8192, udat.EVDDTO|udat.EVDConnection|udat.EVDRMRBind, nil))
	t.requests = must(ia.CreateEVD(64, udat.EVDCR, nil))
	qual, _, err := ia.CreatePSPAny(t.requests, udat.PSPConsumer)
	must(0, err)
	t.witness = newWitness(ia, t.arena.pz)
	go drainAsync(ia.AsyncEVD())
	say(pattern.Hello{Port: uint16(qual), Grants: t.arena.grants()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || f[0] != "session" {
			panic("target: unknown line " + lines.Text())
		}
		seed, port := must(strconv.ParseUint(f[1], 10, 64)), must(strconv.Atoi(f[2]))
		ended := make(chan struct{})
		s := t.begin(seed)
		say("ready")
		go s.run(port, ended)
		if !lines.Scan() { // "end"
			break
		}
		close(ended)
		r := <-s.report
		if time.Since(t.measured) > time.Second { // the collector's work is not a part of the attack
			t.measured = time.Now()
			runtime.GC()
			runtime.GC()
		}
		settle()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		files, _ := os.ReadDir("/proc/self/fd")
		r.HeapKB, r.Files, r.Goroutines = int(ms.HeapAlloc>>10), len(files), runtime.NumGoroutine()
		say(r)
	}
}

// settle gives goroutines that end with a session up to ten seconds, on a loaded machine. If more
// than a few stay, it writes their stacks for the report of the finding.
func settle() {
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > 20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return
		}
	}
}

func drainAsync(evd *udat.EVD) {
	for {
		if _, _, err := evd.Wait(udat.Infinite, 1); err != nil {
			return
		}
	}
}

func say(v any) {
	b := must(json.Marshal(v))
	must(os.Stdout.Write(append(b, '\n')))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("target: %v", err))
	}
	return v
}

func timedOut(err error) bool { return errors.Is(err, udat.ErrTimeoutExpired) }
