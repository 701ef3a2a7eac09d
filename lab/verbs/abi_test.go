package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// abi is what C headers define: the layouts of structs and unions, and the values of enumerations.
type abi struct {
	layouts map[string]layout
	values  map[string]int64
}

type layout struct {
	size    int64
	members map[string]string // "OFFSET TYPE" by name; members of unnamed members are among them
}

// compiled returns the ABI of a piece of C, read from the compiler's debugging information.
func compiled(t *testing.T, source string) abi {
	object := filepath.Join(t.TempDir(), "abi.o")
	flags := append(strings.Fields(os.Getenv("CGO_CFLAGS")), "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c",
		"-o", object, "-I", filepath.Join(root(), "cverbs"), "-x", "c", "-")
	cc := exec.Command("cc", flags...)
	cc.Stdin = strings.NewReader(source)
	out, err := cc.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	f, err := elf.Open(object)
	assert.NilError(t, err)
	defer f.Close()
	data, err := f.DWARF()
	assert.NilError(t, err)
	all := abi{map[string]layout{}, map[string]int64{}}
	for r := data.Reader(); ; {
		e, err := r.Next()
		assert.NilError(t, err)
		if e == nil {
			return all
		}
		switch e.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType:
			typ, err := data.Type(e.Offset)
			assert.NilError(t, err)
			all.add(typ)
		}
	}
}

func (a abi) add(typ dwarf.Type) {
	switch typ := typ.(type) {
	case *dwarf.StructType:
		if typ.StructName != "" && !typ.Incomplete {
			l := layout{typ.ByteSize, map[string]string{}}
			l.add(typ, 0)
			a.layouts[typ.Kind+" "+typ.StructName] = l
		}
	case *dwarf.EnumType:
		for _, v := range typ.Val {
			a.values[v.Name] = v.Val
		}
	}
}

func (l layout) add(typ *dwarf.StructType, at int64) {
	for _, f := range typ.Field {
		if inner, ok := f.Type.(*dwarf.StructType); ok && f.Name == "" {
			l.add(inner, at+f.ByteOffset)
		} else {
			l.members[f.Name] = fmt.Sprintf("%d %s", at+f.ByteOffset, typeText(f.Type))
		}
	}
}

// typeText describes a type without the names of typedefs and without qualifiers.
func typeText(typ dwarf.Type) string {
	switch typ := typ.(type) {
	case *dwarf.TypedefType:
		return typeText(typ.Type)
	case *dwarf.QualType:
		return typeText(typ.Type)
	case *dwarf.PtrType:
		return "*" + typeText(typ.Type)
	case *dwarf.ArrayType:
		return fmt.Sprintf("[%d]%s", typ.Count, typeText(typ.Type))
	case *dwarf.FuncType:
		var all []string
		for _, p := range typ.ParamType {
			all = append(all, typeText(p))
		}
		return fmt.Sprintf("func(%s) %s", strings.Join(all, ", "), typeText(typ.ReturnType))
	case *dwarf.StructType:
		if typ.StructName != "" {
			return typ.Kind + " " + typ.StructName
		}
		l := layout{typ.ByteSize, map[string]string{}}
		l.add(typ, 0)
		return fmt.Sprintf("%s %v", typ.Kind, l)
	case *dwarf.EnumType: // its values decide only whether it has a sign
		signed := slices.ContainsFunc(typ.Val, func(v *dwarf.EnumValue) bool { return v.Val < 0 })
		return fmt.Sprint("enum ", typ.EnumName, " signed:", signed)
	case *dwarf.UintType:
		return fmt.Sprintf("uint%d", 8*typ.ByteSize) // on a 64-bit processor long and long long are equal
	case nil:
		return "void"
	}
	return typ.String()
}

// realABI returns the ABI of the installed headers.
func realABI(t *testing.T) abi {
	installed(t)
	return compiled(t, "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n")
}

var ownName = regexp.MustCompile(`^\w+ (ibv|rdma|verbs)_`)

// differences returns a message for each struct, member and value of own that is not in real, or
// has another place, type or value there. Members whose names begin with "unused" have no
// counterpart.
func differences(own, real abi) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for name, l := range own.layouts {
		r, ok := real.layouts[name]
		switch {
		case !ownName.MatchString(name): // of the C library
		case !ok:
			say("the headers have no %s", name)
		case l.size != r.size && !slices.Contains(partial, name):
			say("%s has %d bytes, in the headers %d", name, l.size, r.size)
		}
		for member, is := range l.members {
			if want := r.members[member]; ok && !strings.HasPrefix(member, "unused") && is != want {
				say("%s.%s is %q, in the headers %q", name, member, is, want)
			}
		}
	}
	for name, is := range own.values {
		if want, ok := real.values[name]; is != want || !ok {
			say("%s is %d, in the headers %d (declared: %v)", name, is, want, ok)
		}
	}
	slices.Sort(found)
	return found
}

// partial are structs that only the libraries create: cverbs/abi.h declares their first members.
var partial = []string{"struct ibv_ah", "struct ibv_flow", "struct ibv_srq"}

// TestABI: all that cverbs/abi.h declares is in the installed headers, with the same layout.
func TestABI(t *testing.T) {
	own := compiled(t, "#include \"abi.h\"\n")
	assert.Assert(t, len(own.layouts) > 90 && len(own.values) > 90, "%d, %d", len(own.layouts), len(own.values))
	for _, d := range differences(own, realABI(t)) {
		t.Error(d)
	}
}

// TestDifferences: differences reports another size, place, type and value, and what is missing.
func TestDifferences(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
	const c = `struct ibv_a { int n; union { struct { long x, y; } s; char *text; }; int (*f)(int, const char *); };
		enum ibv_e { E1 = 1 };`
	real := compiled(t, c)
	assert.DeepEqual(t, differences(real, real), []string(nil))
	for from, to := range map[string]string{"int n;": "long n;", "long x, y": "long y, x", "const char": "const short",
		"E1 = 1": "E1 = 2", "E1": "E0", "ibv_a": "ibv_b", "*text": "*more"} {
		found := differences(compiled(t, strings.ReplaceAll(c, from, to)), real)
		assert.Check(t, len(found) > 0, "%s instead of %s", to, from)
	}
}

// TestValues: the constants of cverbs have the values of the installed headers.
func TestValues(t *testing.T) {
	real := realABI(t)
	for name, is := range values {
		if want, ok := real.values[name]; !ok || uint32(is) != uint32(want) {
			t.Errorf("%s is %d in cverbs, %d in the headers (declared: %v)", name, is, want, ok)
		}
	}
}
