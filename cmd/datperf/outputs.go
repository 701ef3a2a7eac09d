package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// outputs says where a measurement's results go, and which limits they must meet.
type outputs struct {
	json, ndjson, csv, html string

	title     string
	labels    map[string]string
	perftest  bool
	gbits     bool
	intervals bool // print each interval
	limits    result.Limits
}

func (o *outputs) register(c *cobra.Command) {
	addFlags(c, "Output, each to a file, or - for standard output", func(f *pflag.FlagSet) {
		f.StringVar(&o.json, "json", "", "everything as one JSON document, to this `file`")
		f.StringVar(&o.ndjson, "ndjson", "", "a JSON text per line as things happen, to this `file`")
		o.registerForms(f)
		o.registerTitle(f)
	})
	o.registerLimits(c)
}

// registerMesh registers the outputs that a mesh can have.
func (o *outputs) registerMesh(c *cobra.Command) {
	addFlags(c, "Output, each to a file, or - for standard output", func(f *pflag.FlagSet) {
		f.StringVar(&o.json, "json", "", "everything as one JSON document, to this `file`")
		o.registerForms(f)
		o.registerTitle(f)
	})
	o.registerLimits(c)
}

func (o *outputs) registerTitle(f *pflag.FlagSet) {
	f.StringVar(&o.title, "title", "", "`title` for the documents")
	f.Var((*labels)(&o.labels), "label", "`name=value` for the documents; may be repeated")
}

// labels is the value of --label. Each use of the flag adds one label. The label's value may
// contain any character.
type labels map[string]string

func (l *labels) String() string { return "" }

func (l *labels) Type() string { return "label" }

func (l *labels) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("must be NAME=VALUE")
	}
	if *l == nil {
		*l = labels{}
	}
	(*l)[name] = value
	return nil
}

func (o *outputs) registerLimits(c *cobra.Command) {
	addFlags(c, "Limits: status 3 if a run misses one", func(f *pflag.FlagSet) {
		f.Float64Var(&o.limits.MinGbitS, "min-bw", 0, "least bandwidth, in `Gb/s`")
		f.Float64Var(&o.limits.MinOpsS, "min-rate", 0, "least rate of bw, in `operations` per second")
		f.DurationVar(&o.limits.MaxP50, "max-p50", 0, "largest median latency, for example 20us")
		f.DurationVar(&o.limits.MaxP99, "max-p99", 0, "largest 99th percentile")
		f.DurationVar(&o.limits.MaxP999, "max-p99.9", 0, "largest 99.9th percentile")
	})
}

// registerForms adds the flags for those formats that the command report can also write, from a
// stored document.
func (o *outputs) registerForms(f *pflag.FlagSet) {
	f.StringVar(&o.html, "html", "", "a page with plots, that opens without a network, to this `file`")
	f.StringVar(&o.csv, "csv", "", "a row per run, two with --direction both, to this `file`")
}

// form is one output format of a document.
type form struct {
	flag, file string
	write      func(io.Writer, *result.Document) error
}

func (o *outputs) forms() []form {
	return []form{
		{"json", o.json, func(w io.Writer, d *result.Document) error { return d.Write(w) }},
		{"csv", o.csv, report.CSV},
		{"html", o.html, report.HTML},
	}
}

// check returns an error if two formats would go to standard output, or if a limit is for a figure
// that no case measures. forProgram reports whether a format goes to standard output. If so, text
// for people must go to standard error.
func (o *outputs) check(cases []result.Case) (forProgram bool, err error) {
	var there []string
	for _, f := range append(o.forms(), form{flag: "ndjson", file: o.ndjson}) {
		if f.file == "-" {
			there = append(there, "--"+f.flag)
		}
	}
	if len(there) > 1 {
		return true, usagef("%s: only one of them can go to standard output", strings.Join(there, ", "))
	}
	if err := o.limits.Validate(cases); err != nil {
		return false, &usageError{err}
	}
	return len(there) == 1, nil
}

// begin checks the outputs of a measurement and opens their files. It returns where to write text
// for people.
func (o *outputs) begin(a *app, cases []result.Case) (people io.Writer, files sinks, err error) {
	forProgram, err := o.check(cases)
	if err != nil {
		return nil, nil, err
	}
	if people = a.stdout; forProgram {
		people = a.stderr
	}
	files, err = o.open(a.stdout)
	return people, files, err
}

// sink is an open output: standard output, or a file.
type sink struct {
	form
	w     io.Writer
	file  *os.File // nil: standard output
	made  bool     // the file did not exist before
	begun bool     // the file's old content has been replaced
	size  int64    // bytes written so far
}

// Write appends to the output. If the output is a regular file, the first Write truncates it, and a
// Write that fails leaves none of its bytes in the file. So a full disk does not leave half a line
// of --ndjson.
func (s *sink) Write(b []byte) (int, error) {
	if !s.begun {
		if err := s.cut(0); err != nil {
			return 0, err
		}
	}
	s.begun = true
	n, err := s.w.Write(b)
	if err != nil {
		return n, errors.Join(err, s.cut(s.size))
	}
	s.size += int64(n)
	return n, nil
}

// cut truncates a regular file to the given size. For any other output it does nothing.
func (s *sink) cut(size int64) error {
	if s.file == nil {
		return nil
	}
	if info, err := s.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	if _, err := s.file.Seek(size, io.SeekStart); err != nil {
		return err
	}
	return s.file.Truncate(size)
}

// open opens all files. It is called before the measurement, so that the user learns early about a
// file that cannot be written. A file keeps its content until it is written.
func (o *outputs) open(stdout io.Writer) (sinks, error) {
	var all sinks
	for _, f := range o.forms() {
		if f.file == "" {
			continue
		}
		one, err := openSink(f, stdout)
		if err != nil {
			all.drop()
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func openSink(f form, stdout io.Writer) (*sink, error) {
	if f.file == "-" {
		return &sink{form: f, w: stdout}, nil
	}
	_, missing := os.Stat(f.file)
	file, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", f.flag, err)
	}
	return &sink{form: f, w: file, file: file, made: missing != nil}, nil
}

type sinks []*sink

// write writes a document in all formats.
func (all sinks) write(d *result.Document) error {
	var errs []error
	for i := range all {
		if err := all[i].put(d); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", all[i].flag, err))
		}
	}
	return errors.Join(errs...)
}

func (s *sink) put(d *result.Document) error { return s.finish(s.write(s, d)) }

// finish closes a file. The argument err is the error of writing the document. If the document
// could not be written completely, the method empties the file, or removes the file if it is new.
func (s *sink) finish(err error) error {
	if s.file == nil {
		return err
	}
	if err != nil && s.begun {
		if info, e := s.file.Stat(); e == nil && info.Mode().IsRegular() && !s.made {
			err = fmt.Errorf("%w; %s is empty now", err, s.form.file)
		}
		err = errors.Join(err, s.cut(0))
	}
	if err = errors.Join(err, s.file.Close()); err != nil && s.made {
		os.Remove(s.form.file)
	}
	return err
}

// drop closes the files. A file that was not written keeps its content. If the method open created
// that file, the method drop removes it.
func (all sinks) drop() {
	for _, s := range all {
		s.drop()
	}
}

func (s *sink) drop() {
	if s.file == nil {
		return
	}
	s.file.Close()
	if s.made && !s.begun {
		os.Remove(s.form.file)
	}
}

// judge prints the limits that the runs missed. It returns errMissed if they missed any.
func (o *outputs) judge(runs []result.Run, w io.Writer) error {
	missed := o.limits.Missed(runs)
	for _, text := range missed {
		fmt.Fprintf(w, "limit missed: %s\n", text)
	}
	if len(missed) > 0 {
		return errMissed
	}
	return nil
}
