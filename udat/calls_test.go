package udat_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// datCalls are all calls of uDAPL 1.2.
var datCalls = strings.Fields(`
	dat_ia_open dat_ia_query dat_ia_close dat_set_consumer_context dat_get_consumer_context dat_get_handle_type
	dat_strerror
	dat_registry_list_providers dat_registry_add_provider dat_registry_remove_provider dat_provider_init dat_provider_fini
	dat_cno_create dat_cno_modify_agent dat_cno_query dat_cno_free dat_cno_wait
	dat_evd_create dat_evd_query dat_evd_modify_cno dat_evd_enable dat_evd_disable dat_evd_wait dat_evd_dequeue
	dat_evd_post_se
	dat_evd_resize dat_evd_set_unwaitable dat_evd_clear_unwaitable dat_evd_free
	dat_ep_create dat_ep_create_with_srq dat_ep_query dat_ep_modify dat_ep_get_status dat_ep_connect dat_ep_dup_connect
	dat_ep_disconnect dat_ep_reset dat_ep_free dat_ep_post_send dat_ep_post_recv dat_ep_post_rdma_read
	dat_ep_post_rdma_write
	dat_ep_recv_query dat_ep_set_watermark
	dat_psp_create dat_psp_create_any dat_psp_query dat_psp_free dat_rsp_create dat_rsp_query dat_rsp_free
	dat_cr_query dat_cr_accept dat_cr_reject dat_cr_handoff dat_pz_create dat_pz_query dat_pz_free
	dat_lmr_create dat_lmr_query dat_lmr_free dat_lmr_sync_rdma_read dat_lmr_sync_rdma_write
	dat_rmr_create dat_rmr_bind dat_rmr_query dat_rmr_free
	dat_srq_create dat_srq_free dat_srq_post_recv dat_srq_query dat_srq_resize dat_srq_set_lw`)

// noSymbol says why a call has no Go counterpart.
var noSymbol = map[string]string{
	"dat_provider_init": "entry point of a loadable C provider: the library is its own provider",
	"dat_provider_fini": "entry point of a loadable C provider: the library is its own provider",
}

// otherName maps calls to Go names that do not follow the naming rule.
var otherName = map[string]string{
	"dat_ia_open":                  "Open",
	"dat_registry_list_providers":  "Providers",
	"dat_registry_add_provider":    "RegisterProvider",
	"dat_registry_remove_provider": "RemoveProvider",
	"dat_set_consumer_context":     "SetConsumerContext",
	"dat_get_consumer_context":     "GetConsumerContext",
	"dat_get_handle_type":          "GetHandleType",
	"dat_strerror":                 "Strerror",
	"dat_rmr_create":               "PZ.CreateRMR",
	"dat_psp_create_any":           "IA.CreatePSPAny",
	"dat_ep_create_with_srq":       "IA.CreateEPWithSRQ",
	"dat_lmr_sync_rdma_read":       "IA.LMRSyncRDMARead",
	"dat_lmr_sync_rdma_write":      "IA.LMRSyncRDMAWrite",
}

// goName returns the name by the naming rule: dat_x_verb is (*X).Verb, dat_x_create is
// (*IA).CreateX. The case is ignored.
func goName(call string) string {
	if n, ok := otherName[call]; ok {
		return n
	}
	kind, verb, _ := strings.Cut(strings.TrimPrefix(call, "dat_"), "_")
	if verb == "create" {
		return "IA.Create" + kind
	}
	return kind + "." + strings.ReplaceAll(verb, "_", "")
}

var lastLine = regexp.MustCompile(`(?m)^(?:Implements: (dat_\w+)(?: with DAT_\w+)?\.|Extension\..*)\n?\z`)

// TestCalls shows that every call of DAT has a function or method with the name by the rule, whose
// comment ends with that call, and that the comments of all other functions say that they are
// extensions.
func TestCalls(t *testing.T) {
	withoutDevice(t)
	if len(datCalls) != 74 {
		t.Fatalf("%d calls are listed", len(datCalls))
	}
	have := map[string][]string{}
	eachFunction(t, func(file string, fn *ast.FuncDecl) {
		name := fn.Name.Name
		if r := receiver(fn); r != "" {
			name = r + "." + name
		}
		if r, _, _ := strings.Cut(name, "."); !fn.Name.IsExported() || !ast.IsExported(r) || ordinary(name) {
			return
		}
		m := lastLine.FindStringSubmatch(fn.Doc.Text())
		if m == nil {
			t.Errorf("%s: %s: the documentation ends neither in Implements: nor in Extension.", file, name)
		} else if m[1] != "" {
			have[m[1]] = append(have[m[1]], name)
		}
	})
	rows := maps.Clone(have)
	for _, c := range datCalls {
		names := have[c]
		delete(have, c)
		if noSymbol[c] != "" {
			if len(names) > 0 {
				t.Errorf("%s is %v: it was thought to have none", c, names)
			}
			continue
		}
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, goName(c)) }) {
			t.Errorf("%s: no %s implements it: %v", c, goName(c), names)
		}
	}
	guide, err := os.ReadFile("../docs/udapl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range datCalls {
		row := regexp.MustCompile("(?m)^\\| `" + c + "` \\| (.*) \\|$").FindStringSubmatch(string(guide))
		if row == nil {
			t.Errorf("docs/udapl.md has no row for %s", c)
			continue
		}
		for _, name := range rows[c] {
			if kind, verb, method := strings.Cut(name, "."); method {
				name = "(*" + kind + ")." + verb
			}
			if !strings.Contains(row[1], "`"+name+"`") {
				t.Errorf("docs/udapl.md does not name %s for %s: %s", name, c, row[1])
			}
		}
	}
	for c, names := range have {
		t.Errorf("%v implement %s, which is no call of uDAPL 1.2", names, c)
	}
}

// eachFunction visits every function and method in the package's sources, except those of tests.
func eachFunction(t *testing.T, visit func(file string, fn *ast.FuncDecl)) {
	t.Helper()
	files, err := os.ReadDir(".")
	assert.NilError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ParseComments)
		assert.NilError(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				visit(f.Name(), fn)
			}
		}
	}
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	return typ.(*ast.Ident).Name
}

// ordinary reports whether a method belongs to Go's own conventions.
func ordinary(name string) bool {
	for _, m := range []string{".String", ".Error", ".Unwrap", ".Is"} {
		if strings.HasSuffix(name, m) {
			return true
		}
	}
	return false
}
