package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// readFlags are the flags that name a file that a command reads. writtenFlags are the flags that
// name a file that a command writes.
var (
	readFlags    = []string{"secret", "hosts"}
	writtenFlags = []string{"json", "csv", "markdown", "html", "ndjson"}
)

// checkOverwrite returns an error if an output of a command would overwrite one of its inputs or
// another output. The argument read lists the inputs that are not named by flags.
func checkOverwrite(c *cobra.Command, read []string) error {
	read = append(read[:len(read):len(read)], fileFlags(c, readFlags)...)
	var written, flags []string
	for _, flag := range writtenFlags {
		for _, file := range fileFlags(c, []string{flag}) {
			for _, other := range read {
				if sameFile(file, other) {
					return usagef("--%s %s: it would overwrite %s, which is read", flag, file, other)
				}
			}
			for i, other := range written {
				if sameFile(file, other) {
					return usagef("--%s and --%s: both would write %s", flags[i], flag, file)
				}
			}
			written, flags = append(written, file), append(flags, flag)
		}
	}
	return nil
}

// fileFlags returns the files that are named by the given flags of the command. It skips flags that
// the command does not have, and flags that name no file.
func fileFlags(c *cobra.Command, flags []string) (files []string) {
	for _, name := range flags {
		if f := c.Flags().Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "-" {
			files = append(files, f.Value.String())
		}
	}
	return files
}

// sameFile reports whether two names denote the same file, even if the file does not exist yet. Two
// names of a device, for example of a terminal, count as different outputs.
func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	if err1 == nil && err2 == nil && x.Mode().IsRegular() {
		return os.SameFile(x, y)
	}
	return canonical(a) == canonical(b)
}

// canonical returns the absolute name of a file, with the symbolic links of its folder resolved.
// The file need not exist.
func canonical(file string) string {
	file, _ = filepath.Abs(file)
	dir, name := filepath.Split(file)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(dir, name)
}
