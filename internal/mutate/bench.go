package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// verdict is what became of a mutant.
type verdict string

const (
	killed    verdict = "killed"    // a test failed
	hung      verdict = "hung"      // the tests did not end in time
	stillborn verdict = "stillborn" // it does not compile
	survived  verdict = "SURVIVED"
)

// bench builds and runs the tests of mutants, one at a time.
type bench struct {
	dir     string // of the package
	tmp     string
	skip    string // tests that are not run
	timeout time.Duration
}

// patience is how long a test of a mutant waits for what never comes; some tests time things of 20 s, in a bubble.
const patience = "22s"

func newBench(o options) (*bench, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, tmp: tmp, skip: o.skip, timeout: 5 * time.Minute}
	if err := b.measure(o.timeout); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.tmp) }

// measure runs the unbroken tests, which must pass.
func (b *bench) measure(timeout time.Duration) error {
	if out, err := b.build(""); err != nil {
		return fmt.Errorf("the tests do not compile: %w\n%s", err, out)
	}
	start := time.Now()
	if v, by := b.run(); v != survived {
		return fmt.Errorf("the unbroken tests fail: %s", by)
	}
	took := time.Since(start)
	if b.timeout = timeout; timeout == 0 {
		b.timeout = max(30*time.Second, 4*took)
	}
	fmt.Printf("the unbroken tests take %v, mutants may take %v\n", took.Round(time.Millisecond), b.timeout.Round(time.Second))
	return nil
}

func (b *bench) try(m Mutant) (verdict, string, error) {
	file := filepath.Join(b.dir, m.File)
	src, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	if m.End > len(src) || string(src[m.Start:m.End]) != m.Old {
		return "", "", fmt.Errorf("%s has changed meanwhile", file)
	}
	mutated := filepath.Join(b.tmp, m.File)
	if err := os.WriteFile(mutated, m.Apply(src), 0o666); err != nil {
		return "", "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return "", "", err
	}
	list := filepath.Join(b.tmp, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o666); err != nil {
		return "", "", err
	}
	if out, err := b.build(list); err != nil {
		return stillborn, firstLine(out), nil
	}
	v, by := b.run()
	return v, by, nil
}

func (b *bench) binary() string { return filepath.Join(b.tmp, "tests") }

// build compiles the tests; overlay may be empty.
func (b *bench) build(overlay string) ([]byte, error) {
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.binary(), ".")
	cmd.Dir = b.dir
	return cmd.CombinedOutput()
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*)|^(fatal error: .*)`)

// run runs the tests on the fabric inside the process, and says which test failed.
func (b *bench) run() (verdict, string) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary(), "-test.short", "-test.failfast", "-test.skip", b.skip)
	cmd.Dir = b.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "GODAT_TEST_DEVICE=", "GODAT_RULES_OUT=", "GODAT_TEST_PATIENCE="+patience)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil:
		return survived, ""
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return hung, b.timeout.String()
	}
	if m := failure.FindSubmatch(out.Bytes()); m != nil {
		return killed, string(bytes.Join(m[1:], nil))
	}
	return killed, firstLine(out.Bytes())
}

func firstLine(out []byte) string {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return ""
}
