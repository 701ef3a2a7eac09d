package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// workshop is a folder with copies of the modules under test. go test may change the copies.
type workshop struct {
	dir     string
	overlay string
	modfile string
}

// pack is a package under test.
type pack struct {
	suite
	name    string // name of the package
	dir     string
	module  string
	version string
	root    string // folder of the module in the module cache; empty: not in the module cache
}

// newWorkshop copies the modules of the suites into dir and writes the files that the build needs.
func newWorkshop(dir string, list []suite) (w workshop, packs []pack, err error) {
	w = workshop{dir: dir, overlay: filepath.Join(dir, "overlay.json"), modfile: filepath.Join(dir, "go.mod")}
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		return w, nil, err
	}
	goroot, err := output("go", "env", "GOROOT")
	if err != nil {
		return w, nil, err
	}
	replaced := map[string]string{}
	if err := hookedNet(goroot, dir, replaced); err != nil {
		return w, nil, err
	}
	for _, s := range list {
		p := pack{suite: s}
		text, err := output("go", "list", "-f",
			"{{.Name}}\t{{.Dir}}\t{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{else}}\t\t{{end}}", s.pkg)
		if err != nil {
			return w, nil, err
		}
		f := append(strings.Split(text, "\t"), "", "")
		p.name, p.dir, p.module, p.version = f[0], f[1], f[2], f[3]
		if p.version != "" {
			p.root = f[4]
		}
		if p.module == "" {
			p.version = runtime.Version()
			p.name += "_test" // our file imports rdmanet, and with it much of the standard library: avoid an import cycle
		}
		packs = append(packs, p)
	}
	return w, packs, w.copyModules(packs, replaced)
}

// copyModules copies the modules out of the module cache. It writes a go.mod that uses the copies,
// and the overlay of the build, which lists the files to replace.
func (w workshop) copyModules(packs []pack, replaced map[string]string) error {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		return err
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	text := strings.Replace(string(mod), "=> ../../", "=> "+repo, 1)
	copied := map[string]bool{}
	for i := range packs {
		p := &packs[i]
		if p.root != "" {
			to := filepath.Join(w.dir, strings.ReplaceAll(p.module, "/", "_")+"@"+p.version)
			if !copied[p.module] {
				copied[p.module] = true
				if err := copyTree(p.root, to); err != nil {
					return err
				}
				text += fmt.Sprintf("\nreplace %s => %s\n", p.module, to)
			}
			p.dir = filepath.Join(to, strings.TrimPrefix(p.dir, p.root))
		}
		if err := w.edit(p, replaced); err != nil {
			return err
		}
		place := "godat_hooks_test.go"
		if p.name == "main" {
			place = "godat_hooks.go"
		}
		file := w.file(p, place)
		if err := writeNew(file, fmt.Sprintf(setHooks, p.name)); err != nil {
			return err
		}
		replaced[filepath.Join(p.dir, place)] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	if err := writeNew(w.overlay, string(list)); err != nil {
		return err
	}
	if err := os.WriteFile(w.modfile, []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(w.modfile, "mod")+"sum", sum, 0o644)
}

// file returns the path of the file that replaces a file of a package. The parameter name is the
// name of the replaced file.
func (w workshop) file(p *pack, name string) string {
	return filepath.Join(w.dir, "files", strings.ReplaceAll(p.pkg, "/", "_")+"_"+name)
}

// edit applies the edits of a suite and adds the edited files to replaced.
func (w workshop) edit(p *pack, replaced map[string]string) error {
	texts := map[string]string{}
	for _, e := range p.edits {
		if texts[e.file] == "" {
			b, err := os.ReadFile(filepath.Join(p.dir, e.file))
			if err != nil {
				return err
			}
			texts[e.file] = string(b)
		}
		if !strings.Contains(texts[e.file], e.old) {
			return fmt.Errorf("%s: %s has no %q", p.pkg, e.file, e.old)
		}
		texts[e.file] = strings.ReplaceAll(texts[e.file], e.old, e.new)
	}
	for name, text := range texts {
		file := w.file(p, name)
		if err := writeNew(file, text); err != nil {
			return err
		}
		replaced[filepath.Join(p.dir, name)] = file
	}
	return nil
}

// writeNew writes a file, unless the file already has this text.
func writeNew(file, text string) error {
	if b, err := os.ReadFile(file); err == nil && string(b) == text {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// copyTree copies a module, unless the copy exists. The name of the copy contains the module's
// version.
func copyTree(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	if err := os.CopyFS(to+".part", os.DirFS(from)); err != nil {
		return err
	}
	if err := exec.Command("chmod", "-R", "u+w", to+".part").Run(); err != nil {
		return err
	}
	return os.Rename(to+".part", to)
}

// build compiles the tests of a package, or the package itself if it is a program. It returns the
// path of the binary.
func (w workshop) build(p pack) (string, error) {
	bin := filepath.Join(w.dir, "bin", strings.ReplaceAll(p.pkg, "/", "_"))
	args := []string{"build"}
	if p.name != "main" {
		args = []string{"test", "-c", "-vet=off"}
	}
	args = append(args, "-mod", "mod", "-overlay", w.overlay, "-modfile", w.modfile, "-o", bin, p.pkg)
	cmd := exec.Command("go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return bin, nil
}

func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(b)), nil
}
