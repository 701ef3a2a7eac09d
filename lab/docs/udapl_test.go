package docs

import (
	"bytes"
	"fmt"
	"go/build"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

const constantsPage = "docs/udapl-constants.md"

// A row contains the C name, the Go name, the value, and the value in uDAPL 2.0 if that differs.
var constantRow = regexp.MustCompile("(?m)^\\| `(DAT_\\w+)` \\| `(\\w+)` \\| ([^|]+) \\| ([^|]*)\\|$")

// TestConstants: the page lists every constant of package udat with its value, and no others.
func TestConstants(t *testing.T) {
	scope := udat(t).Scope()
	page := read(constantsPage)
	rows := map[string][]string{}
	for _, row := range constantRow.FindAllStringSubmatch(page, -1) {
		rows[row[2]] = row
		if _, ok := scope.Lookup(row[2]).(*types.Const); !ok {
			t.Errorf("udat has no constant %s", row[2])
		}
	}
	_, beyond, _ := strings.Cut(page, "## Beyond")
	beyond, _, _ = strings.Cut(beyond, "## Attributes")
	n := 0
	for _, name := range scope.Names() {
		c, ok := scope.Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		n++
		row := rows[name]
		switch {
		case row == nil && !strings.Contains(beyond, "`"+name+"`"):
			t.Errorf("%s does not list udat.%s", constantsPage, name)
		case row == nil || name == "Infinite":
		case c.Val().Kind() == constant.String:
			assert.Check(t, constant.StringVal(c.Val()) == row[3], "%s is %s on the page", name, row[3])
		default:
			on, err := strconv.ParseInt(row[3], 0, 64)
			is, _ := constant.Int64Val(constant.ToInt(c.Val()))
			assert.Check(t, err == nil && on == is, "%s is %s on the page, and %d", name, row[3], is)
		}
	}
	assert.Assert(t, n > 300, "only %d constants have been found", n)
}

// TestAttributes: the page lists every field of the attributes.
func TestAttributes(t *testing.T) {
	scope := udat(t).Scope()
	for _, name := range []string{"IAAttr", "ProviderAttr", "EPAttr", "SRQAttr"} {
		_, part, found := strings.Cut(read(constantsPage), ": `"+name+"`\n")
		assert.Assert(t, found, "%s has no table of %s", constantsPage, name)
		part, _, _ = strings.Cut(part, "\n#")
		fields := scope.Lookup(name).Type().Underlying().(*types.Struct)
		listed := strings.Count(part, " | `")
		assert.Check(t, listed == fields.NumFields(), "%s: %d fields are listed, there are %d", name, listed,
			fields.NumFields())
		for i := range fields.NumFields() {
			field := fields.Field(i).Name()
			assert.Check(t, strings.Contains(part, "| `"+field+"` |"), "%s does not list %s.%s", constantsPage, name, field)
		}
	}
}

// TestHeaders compares the page with the C headers of uDAPL 2.0, if they are installed
// (libdat-dev).
func TestHeaders(t *testing.T) {
	cc := compiler(t)
	var source, want strings.Builder
	source.WriteString("#include <stdio.h>\n#include <netinet/in.h>\n#include <dat2/udat.h>\n" +
		"#include <dat2/dat_ib_extensions.h>\nint main(void) {\n")
	for _, row := range constantRow.FindAllStringSubmatch(read(constantsPage), -1) {
		value := strings.TrimSpace(row[4])
		if value == "" {
			value = row[3]
		}
		v, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			continue // a string
		}
		fmt.Fprintf(&source, "printf(\"%s %%u\\n\", (unsigned)%s);\n", row[1], row[1])
		fmt.Fprintf(&want, "%s %d\n", row[1], uint32(v))
	}
	source.WriteString("return 0; }\n")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "values.c"), filepath.Join(dir, "values")
	assert.NilError(t, os.WriteFile(file, []byte(source.String()), 0o600))
	out, err := exec.Command(cc, "-w", "-o", program, file).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	values, err := exec.Command(program).Output()
	assert.NilError(t, err)
	assert.Assert(t, bytes.Count(values, []byte("\n")) > 200)
	assert.Equal(t, string(values), want.String())
}

// TestC compiles the C programs of the pages, if the headers of uDAPL 2.0 are installed.
func TestC(t *testing.T) {
	cc := compiler(t)
	n := 0
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	assert.NilError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		assert.NilError(t, err)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "c" {
				continue
			}
			n++
			check := exec.Command(cc, "-x", "c", "-fsyntax-only", "-Wall", "-Werror", "-")
			check.Stdin = strings.NewReader(m[2])
			out, err := check.CombinedOutput()
			assert.Check(t, err == nil, "%s: %s", page, out)
		}
	}
	assert.Assert(t, n > 0)
}

// compiler returns the C compiler. It skips the test if there is none, or if uDAPL's headers are
// missing.
func compiler(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if _, missing := os.Stat("/usr/include/dat2/udat.h"); missing != nil || err != nil {
		t.Skip("the headers of uDAPL 2.0 or a C compiler are not here: ", missing, err)
	}
	return cc
}

// udat returns package udat, read from its sources.
func udat(t *testing.T) *types.Package {
	t.Helper()
	t.Setenv("CGO_ENABLED", "0")
	build.Default.CgoEnabled = false
	t.Chdir(filepath.Join(root, "udat"))
	p, err := imported()
	t.Chdir(filepath.Join("..", "lab", "docs"))
	assert.NilError(t, err)
	return p
}

var imported = sync.OnceValues(func() (*types.Package, error) {
	return importer.ForCompiler(token.NewFileSet(), "source", nil).Import("github.com/godat/godat/udat")
})
