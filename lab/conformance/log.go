package main

import (
	"os"
	"regexp"
	"strings"
)

// outcomes maps the tests and subtests in a suite's log to their outcome: PASS, FAIL or SKIP.
type outcomes map[string]string

var outcomeLine = regexp.MustCompile(`--- (PASS|FAIL|SKIP): (\S+) \(`)

func readLog(path string) (outcomes, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	o := outcomes{}
	for _, m := range outcomeLine.FindAllStringSubmatch(string(text), -1) {
		o[m[2]] = m[1]
	}
	return o, nil
}

// doubt returns why a record of a test does not count, or "" if the record counts.
func (o outcomes) doubt(test string) string {
	if o[test] != "PASS" {
		return "the log does not say that it has passed"
	}
	for part, outcome := range o {
		if outcome != "PASS" && strings.HasPrefix(part, test+"/") {
			return part + " says " + outcome
		}
	}
	return ""
}
