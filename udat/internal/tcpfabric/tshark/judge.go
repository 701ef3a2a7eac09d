package tshark

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Verdict is what tshark reports about a capture.
type Verdict struct {
	// Frames has a map for each frame. The map has the frame's fields, with the values that tshark
	// writes. A key is the last part of the field's name; the keys of an atomic begin with "atomic.".
	// If several frames share a packet, they share a map, with the values joined by commas.
	Frames []map[string]string
	// Opcodes maps each opcode of RDMAP to the number of its frames.
	Opcodes map[string]int
	// GoodCRC and BadCRC are the numbers of frames with a right and with a wrong checksum.
	GoodCRC, BadCRC int
	// Malformed lists the frames that tshark could not decode.
	Malformed []string
}

// fields are the fields that tshark prints for each frame.
var fields = []string{
	"iwarp_mpa.ulpdulength", "iwarp_ddp.last_flag", "iwarp_ddp.stag", "iwarp_ddp.tagged_offset", "iwarp_ddp.qn",
	"iwarp_ddp.msn", "iwarp_ddp.mo", "iwarp_rdma.opcode", "iwarp_rdma.inval_stag", "iwarp_rdma.sinkstag",
	"iwarp_rdma.sinkto", "iwarp_rdma.rdmardsz", "iwarp_rdma.srcstag", "iwarp_rdma.srcto", "iwarp_rdma.atomic.opcode",
	"iwarp_rdma.atomic.request_identifier", "iwarp_rdma.atomic.remote_stag", "iwarp_rdma.atomic.remote_tagged_offset",
	"iwarp_rdma.atomic.add_data", "iwarp_rdma.atomic.swap_data", "iwarp_rdma.atomic.compare_data",
	"iwarp_rdma.atomic.original_request_identifier", "iwarp_rdma.atomic.original_remote_data_value",
	"iwarp_rdma.term_layer", "iwarp_rdma.term_errcode_rdma", "iwarp_mpa.rev", "iwarp_mpa.crc_flag",
	"iwarp_mpa.rej_flag", "iwarp_mpa.pdlength", "iwarp_mpa.privatedata", "_ws.malformed",
}

// Judge runs tshark on the capture. It skips the test on a host without tshark.
func (c *Capture) Judge(t *testing.T) Verdict {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("there is no tshark: ci/deps.sh tshark")
	}
	c.mu.Lock()
	file := slices.Clone(c.file.Bytes())
	c.mu.Unlock()
	path := filepath.Join(t.TempDir(), "capture.pcap")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	v := Verdict{Opcodes: map[string]int{}}
	args := []string{"-T", "fields", "-E", "separator=/t"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	for line := range strings.Lines(run(t, path, args...)) {
		frame := map[string]string{}
		for i, value := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			if value != "" {
				_, name, _ := strings.Cut(fields[i], ".")
				frame[name] = value
			}
		}
		if bad, is := frame["malformed"]; is {
			v.Malformed = append(v.Malformed, fmt.Sprintf("%s: %v", bad, frame))
		}
		if len(frame) > 0 {
			v.Frames = append(v.Frames, frame)
		}
		if op, is := frame["opcode"]; is && frame["ulpdulength"] != "" {
			for op := range strings.SplitSeq(op, ",") {
				v.Opcodes[op]++
			}
		}
	}
	// No field says whether a checksum is right.
	text := run(t, path, "-O", "iwarp_mpa")
	v.GoodCRC, v.BadCRC = strings.Count(text, "(Good CRC32)"), strings.Count(text, "(Bad CRC32")
	return v
}

// run runs tshark and returns its output. It disables the protocols that guess whether a payload is
// theirs.
func run(t *testing.T, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command("tshark", append([]string{
		"-n", "-r", path, "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct", "--disable-protocol", "iser",
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // so that tshark does not use the user's settings
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, errs.String())
	}
	return string(out)
}
