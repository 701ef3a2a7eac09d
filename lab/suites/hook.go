package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The programs under test call package net, or packages that call package net, such as net/http. So
// package net is built with three hooks. A file that is added to the package under test sets them.

// netHooks are insertions into files of package net. Each text is inserted after the code in the
// field anchor.
var netHooks = []struct{ file, anchor, text string }{
	{"dial.go", "func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {\n" +
		"\tctx, cancel := d.dialCtx(ctx)\n\tdefer cancel()\n",
		"\tif DialHook != nil && len(network) >= 3 && network[:3] == \"tcp\" {\n" +
			"\t\treturn DialHook(ctx, network, address)\n\t}\n"},
	{"dial.go", "func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {\n",
		"\tif ListenHook != nil && len(network) >= 3 && network[:3] == \"tcp\" {\n" +
			"\t\treturn ListenHook(ctx, network, address)\n\t}\n"},
	{"pipe.go", "func Pipe() (Conn, Conn) {\n", "\tif PipeHook != nil {\n\t\treturn PipeHook()\n\t}\n"},
}

// netVars declares the hooks. It is appended to net/dial.go.
const netVars = `
var DialHook func(ctx context.Context, network, address string) (Conn, error)
var ListenHook func(ctx context.Context, network, address string) (Listener, error)
var PipeHook func() (Conn, Conn)
`

// setHooks is the file that is added to a package under test.
const setHooks = `package %s

import (
	"net"

	"github.com/godat/godat/lab/suites/wire"
)

func init() {
	if wire.Device() != "" {
		net.DialHook, net.ListenHook = wire.Dial, wire.Listen
	}
	if wire.ReplacesPipe() {
		net.PipeHook = wire.Pipe
	}
}
`

// hookedNet writes the files of package net with the hooks into dir. For each file it adds an entry
// to the map replaced. The key is the path of the original file, and the value is the path of the
// new file.
func hookedNet(goroot, dir string, replaced map[string]string) error {
	texts := map[string]string{}
	for _, h := range netHooks {
		text := texts[h.file]
		if text == "" {
			b, err := os.ReadFile(filepath.Join(goroot, "src", "net", h.file))
			if err != nil {
				return err
			}
			text = string(b)
		}
		if strings.Count(text, h.anchor) != 1 {
			return fmt.Errorf("net/%s has not one %q", h.file, h.anchor)
		}
		texts[h.file] = strings.Replace(text, h.anchor, h.anchor+h.text, 1)
	}
	texts["dial.go"] += netVars
	for name, text := range texts {
		hooked := filepath.Join(dir, name)
		if err := writeNew(hooked, text); err != nil {
			return err
		}
		replaced[filepath.Join(goroot, "src", "net", name)] = hooked
	}
	return nil
}
