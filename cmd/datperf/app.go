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
	statusUsage     = 2 // wrong use: nothing was done
	statusMissed    = 3 // it worked, but a limit or threshold was missed
	statusUndecided = 4 // compare cannot tell
	statusMissing   = 5 // compare: what was measured then was not measured now
)

// app is one invocation.
type app struct {
	ctx    context.Context
	finish *finisher
	args   []string
	stdout *output
	stderr io.Writer
}

// output is standard output. Its first error counts at the end: a table that was not written is not
// a success.
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

// statusError is the error of a command that worked, and whose outcome has been printed.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.status) }

// also adds an error to that of a command. An outcome is dropped: the error is what counts.
func also(err, more error) error {
	var printed *statusError
	if more != nil && errors.As(err, &printed) {
		err = nil
	}
	return errors.Join(err, more)
}

// errMissed is the error of a run that worked but missed a limit.
var errMissed error = &statusError{statusMissed}

// stamped is the version of a package or an image, set with -ldflags "-X main.stamped=VERSION".
var stamped string

// buildVersion is the stamped version, the module's, or the commit that it was built from.
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
