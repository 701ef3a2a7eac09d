package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/godat/godat/cverbs"
)

// The protocol hipobj-rc-v2: each transfer has a reliably connected queue pair at either end, and
// the headers of two HTTP requests, PREPARE and READY, carry what the two need to connect.
const (
	protocol = "hipobj-rc-v2"
	controls = "/.hipobj-rc/" // prepare, ready, cancel
	prefix   = "X-Amz-Rdma-"  // of all headers
	maxSize  = 1<<31 - 1      // bytes of one transfer
	rc       = 1              // first byte of a token: reliably connected; 0 is NVIDIA's DC
)

// token describes a queue pair and memory. On the wire it is little-endian but for the GID.
type token struct {
	QPN          uint32
	GID          cverbs.GID
	RKey         uint32
	Addr, Length uint64
	Port         uint8
	LID          uint16
}

func (t token) String() string {
	b, _ := binary.Append([]byte{rc}, binary.LittleEndian, t)
	return hex.EncodeToString(b)
}

// parseToken reads a token, without the :ADDRESS:SIZE that older clients append. Zeroes stand for
// the reader's own device, and become the zero value.
func parseToken(s string) (t token, err error) {
	s, _, _ = strings.Cut(s, ":")
	b, err := hex.DecodeString(s)
	if err == nil && bytes.Count(b, []byte{0}) == 44 && len(b) == 44 {
		return t, nil
	}
	if err != nil || len(b) != 44 || b[0] != rc {
		return t, fmt.Errorf("the token %.100q is not the 88 hex digits of one for RC", s)
	}
	if binary.Decode(b[1:], binary.LittleEndian, &t); t.GID.IsZero() {
		return t, errors.New("the token has no GID")
	}
	return t, nil
}

// fields reads the protocol's headers, and remembers the first error.
type fields struct {
	http.Header
	err error
}

// text returns a header that must be there once.
func (f *fields) text(name string) string {
	if v := f.Values(prefix + name); len(v) == 1 {
		return v[0]
	}
	f.fail("%s%s must be there once", prefix, name)
	return ""
}

// hex returns a number of 1 to 16 hex digits in either case.
func (f *fields) hex(name string, least, most uint64) uint64 {
	s := f.text(name)
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) > 16 || n < least || n > most {
		f.fail("%s%s is %.40q: it must be hex digits, from %x to %x", prefix, name, s, least, most)
	}
	return n
}

// decimal returns a decimal number. One beyond 63 bits counts as the largest.
func (f *fields) decimal(name string) int64 {
	s := f.text(name)
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		f.fail("%s%s is %.40q: it must be decimal digits", prefix, name, s)
	}
	return int64(n)
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fail(400, format, args...)
	}
}

// failure is an answer other than success.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func fail(status int, format string, args ...any) error {
	return failure{status, fmt.Sprintf(format, args...)}
}

// codes are S3's names of the statuses.
var codes = map[int]string{400: "InvalidRdmaRequest", 403: "AccessDenied", 404: "NoSuchKey", 405: "MethodNotAllowed",
	408: "RequestTimeout", 409: "RdmaSessionConflict", 411: "MissingContentLength", 413: "EntityTooLarge",
	416: "InvalidRange", 429: "RdmaResourceLimit", 500: "InternalError", 501: "NotImplemented",
	502: "RdmaTransferFailed", 503: "RdmaServiceUnavailable"}

// answer writes an error as S3's clients expect it. An error that is no failure is an internal one.
func answer(w http.ResponseWriter, err error) {
	f := failure{500, err.Error()}
	errors.As(err, &f)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>", codes[f.status])
	xml.EscapeText(w, []byte(f.text))
	fmt.Fprint(w, "</Message></Error>")
}

// objectName returns the name of the object's file in the folder. Of queries only the one that S3's
// libraries add to each request is ignored: a part or a version of an object is not the object.
func objectName(u *url.URL) (string, error) {
	for name := range u.Query() {
		if name != "x-id" {
			return "", fail(501, "the query %.40q is not served", name)
		}
	}
	name := strings.TrimPrefix(u.Path, "/")
	file, err := filepath.Localize(name)
	if bucket, _, ok := strings.Cut(name, "/"); err != nil || !ok || bucket[0] == '.' {
		return "", fail(400, "%.200q is no /BUCKET/KEY with a key that can name a file", u.Path)
	}
	return file, nil
}
