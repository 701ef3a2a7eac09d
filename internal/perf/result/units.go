package result

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Seconds is a duration that is a number of seconds in JSON.
type Seconds time.Duration

// MarshalJSON encodes the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

// UnmarshalJSON decodes a number of seconds.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f < -1e9 || f > 1e9 {
		return fmt.Errorf("duration of %g s", f)
	}
	*s = Seconds(f * float64(time.Second))
	return nil
}

// Bytes formats a size exactly: 64B, 4KiB, 1000B.
func Bytes(n int) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return strconv.Itoa(n>>u.shift) + u.name
		}
	}
	return strconv.Itoa(n) + "B"
}

// ParseBytes parses a size: a number of bytes, or a number followed by K, M or G for KiB, MiB or
// GiB. KB and KiB mean the same as K.
func ParseBytes(s string) (int, error) {
	n, err := ParseMemory(s, maxSize)
	return int(n), err
}

// ParseMemory parses a size from 1 to limit bytes, in the syntax of ParseBytes.
func ParseMemory(s string, limit int64) (int64, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B"), "I")
	shift := 0
	if n := len(text); n > 0 {
		if i := strings.IndexByte("KMG", text[n-1]); i >= 0 {
			shift, text = 10*(i+1), text[:n-1]
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > limit>>shift {
		return 0, fmt.Errorf("size %q: must be a number from 1 to %d, with K, M or G for KiB, MiB or GiB", s, limit)
	}
	return n << shift, nil
}

// ParseSizes parses a list of sizes and ranges, as "2,64,4K" or "2-1M". In a range each size is
// twice the previous one. "all" means 2-8M.
func ParseSizes(s string) ([]int, error) {
	if s == "all" {
		s = "2-8M"
	}
	var sizes []int
	for part := range strings.SplitSeq(s, ",") {
		low, high, sweep := strings.Cut(part, "-")
		if sweep && (low == "" || high == "") { // for "-1" the error names the whole part, not an empty text
			low = part
		}
		from, err := ParseBytes(low)
		if err != nil {
			return nil, err
		}
		if !sweep {
			sizes = append(sizes, from)
			continue
		}
		to, err := ParseBytes(high)
		if err != nil {
			return nil, err
		}
		if to < from {
			return nil, fmt.Errorf("sizes %q: the first is larger than the last", part)
		}
		for n := from; n <= to; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

// Count formats a number of things: "1 host", "2 hosts".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Nanos formats a time in ns as microseconds, or as seconds if it is one second or more.
func Nanos(ns float64) string {
	switch {
	case ns < 1e9:
		return strconv.FormatFloat(ns/1e3, 'f', 2, 64) + "us"
	default:
		return strconv.FormatFloat(ns/1e9, 'f', 3, 64) + "s"
	}
}
