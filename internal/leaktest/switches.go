package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Switches returns how often the threads of a process have gone to sleep: their voluntary context
// switches, as Linux counts them. The number does not grow while nothing wakes the process.
func Switches(pid int) (int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("process %d: %w", pid, os.ErrNotExist)
	}
	sum := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0, fmt.Errorf("%s has no count of switches: %w", file, err)
		}
		sum += n
	}
	return sum, err
}
