package cverbs

import (
	"fmt"
	"strings"
)

// enumName returns the name of a value, or KIND(n) for an unknown one.
func enumName[T ~int32 | ~uint32 | ~uint8](names map[T]string, v T, kind string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

type bitName struct {
	bit  uint64
	name string
}

// bitNames joins the names of the set bits with |; bits without a name appear in hexadecimal.
func bitNames[T ~uint16 | ~uint32 | ~uint64](names []bitName, bits T) string {
	v := uint64(bits)
	if v == 0 {
		return "0"
	}
	var parts []string
	for _, b := range names {
		if v&b.bit != 0 {
			parts = append(parts, b.name)
			v &^= b.bit
		}
	}
	if v != 0 {
		parts = append(parts, fmt.Sprintf("%#x", v))
	}
	return strings.Join(parts, "|")
}
