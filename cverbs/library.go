//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

var library struct {
	mu     sync.Mutex
	loaded bool
}

// load opens libibverbs and librdmacm unless they are open. Every function that needs no object
// calls load first. After a failure the next call tries again, because the libraries may have been
// installed meanwhile.
func load() error {
	library.mu.Lock()
	defer library.mu.Unlock()
	if library.loaded {
		return nil
	}
	if why := C.cv_load(); why != nil {
		if err := spareFiles(); err != nil { // too few descriptors may be the reason
			return err
		}
		advice := "install rdma-core's libraries: apt install libibverbs1 ibverbs-providers librdmacm1, or dnf install " +
			"libibverbs librdmacm"
		if strings.Contains(C.GoString(why), "Dynamic loading not supported") { // musl
			advice = "the program is linked statically: build it without -static"
		}
		return &Error{Verb: "dlopen", Errno: syscall.EOPNOTSUPP, Advice: C.GoString(why) + ": " + advice}
	}
	library.loaded = true
	return nil
}

// rdma-core names its libraries NAME.so.MAJOR.MINOR.VERSION. VERSION is two numbers, such as 44.0.
var libraryVersion = regexp.MustCompile(`\.so\.\d+\.\d+\.(\d+\.\d+)$`)

// Libraries returns the files of libibverbs and librdmacm that this process has opened. If they are
// not open yet, Libraries opens them. If they are linked into the program, it returns an empty
// list. Errors: ErrNotSupported if they are not installed; the text names the packages. EMFILE or
// ENFILE as for Devices.
//
// Extension.
func Libraries() ([]Library, error) {
	if err := load(); err != nil {
		return nil, err
	}
	var all []Library
	for i, name := range []string{"libibverbs", "librdmacm"} {
		file := C.GoString(C.cv_library_file(C.int(i)))
		if file == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real
		}
		l := Library{Name: name, File: file}
		if m := libraryVersion.FindStringSubmatch(file); m != nil {
			l.Version = m[1]
		}
		all = append(all, l)
	}
	return all, nil
}
