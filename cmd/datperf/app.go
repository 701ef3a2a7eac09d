package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
)

// Exit statuses.
const (
	statusOK        = 0
	statusFailed    = 1 // the command failed
	statusUsage     = 2 // wrong use; nothing was measured or written
	statusMissed    = 3 // the command worked, but a limit or threshold was missed
	statusUndecided = 4 // compare: a figure is undecided
	statusMissing   = 5 // compare: a case of OLD is missing in NEW
)

// app is one invocation of the program.
type app struct {
	ctx    context.Context
	finish *finisher
	args   []string
	stdout *output
	stderr io.Writer
}

// output is standard output. The field err is the first error of a write. If it is set, the
// function run returns statusFailed.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// statusError is the error of a command that worked and has printed its outcome, but must exit with
// the given status.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }

// joinErrors joins two errors. If the second error is not nil and the first is a statusError, it
// drops the first.
func joinErrors(first, second error) error {
	var printed *statusError
	if second != nil && errors.As(first, &printed) {
		first = nil
	}
	return errors.Join(first, second)
}

// errMissed is the error if a run worked but missed a limit.
var errMissed error = &statusError{statusMissed}

// stamped is the version of the package or image that contains this program. The build sets it with
// -ldflags "-X main.stamped=VERSION".
var stamped string

// buildVersion returns the stamped version. If the program is not stamped, it returns the module's
// version. If the module has no version either, it returns the commit of the build.
func buildVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	version, dirty := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			version = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return version + dirty
}
