package result

import (
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// maxText is the largest length of a text after Clean, in bytes.
const maxText = 2000

// Clean makes every string that v points to safe to print. It replaces control characters (terminal
// escapes, newlines, changes of direction) by Go escapes, and cuts text after 2000 bytes. Use it
// for text from other programs, such as a peer's message or a document.
func Clean(v any) { cleanValue(reflect.ValueOf(v)) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				cleanValue(v.Field(i))
			}
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k == reflect.String || k == reflect.Struct || k == reflect.Pointer {
			for i := range v.Len() {
				cleanValue(v.Index(i))
			}
		}
	case reflect.Map:
		cleanMap(v)
	case reflect.String:
		if s := v.String(); v.CanSet() {
			v.SetString(CleanText(s))
		}
	}
}

// cleanMap cleans the keys and values of a map. It replaces each entry, because reflection cannot
// change an entry in place.
func cleanMap(v reflect.Value) {
	for _, key := range v.MapKeys() {
		k, e := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
		k.Set(key)
		e.Set(v.MapIndex(key))
		cleanValue(k)
		cleanValue(e)
		v.SetMapIndex(key, reflect.Value{})
		v.SetMapIndex(k, e)
	}
}

// CleanText returns s in a form that is safe to print, as Clean describes.
func CleanText(s string) string {
	if len(s) <= maxText &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= maxText-len("...") {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
