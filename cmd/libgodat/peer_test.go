package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// setup is a frame of MPA, which begins a connection of tcp, written without this library.
func setup(key string, flags, revision byte, private []byte) []byte {
	frame := append([]byte(key), flags, revision)
	return append(binary.BigEndian.AppendUint16(frame, uint16(len(private))), private...)
}

const (
	mpaRequest = "MPA ID Req Frame"
	mpaReply   = "MPA ID Rep Frame"

	mpaReject, mpaEnhanced = 0x20, 0x10
)

// TestPeerBytes: a C program gets the private data of a peer whole, up to the 512 bytes that iWARP
// allows, and nothing of an earlier peer after them. Nothing else that a peer sends becomes an
// event.
func TestPeerBytes(t *testing.T) {
	most, few := bytes.Repeat([]byte("\x02\x00\x02\x00secret?!"), 43)[:512], []byte("\x02\x00\x02\x00few")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := program(t, filepath.Join(directory(t), "peer"), "godat-tcp:127.0.0.1", port)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	next := func(event int, family string, data []byte) {
		t.Helper()
		assert.Assert(t, lines.Scan(), lines.Err())
		memory := append(bytes.Clone(data), make([]byte, 512-len(data))...)
		assert.Equal(t, lines.Text(), fmt.Sprintf("0x%x %d %s %x", event, len(data), family, memory))
	}

	assert.Assert(t, lines.Scan(), lines.Err())
	to, err := strconv.Atoi(lines.Text())
	assert.NilError(t, err, lines.Text())
	for _, frame := range [][]byte{
		setup(mpaReply, 0, 1, few),                         // an answer, not a request
		setup(mpaRequest, 0, 1, make([]byte, 513)),         // more than iWARP allows
		append([]byte(mpaRequest), 0, 1, 0xff, 0xff),       // the longest length
		append([]byte(mpaRequest), 0x10, 2, 0, 2, 0xff, 0), // an enhanced request, cut off in its fields
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		setup(mpaRequest, 0, 1, most),
		setup(mpaRequest, 0, 1, few[4:]),
		setup(mpaRequest, 0, 1, nil),
		setup(mpaRequest, 0, 1, []byte("end\x00")),
	} {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(to)))
		assert.NilError(t, err)
		_, err = c.Write(frame)
		assert.NilError(t, err)
		io.Copy(io.Discard, c) // until the provider has answered
		c.Close()
	}
	const requested, rejected = 0x2001, 0x4002
	next(requested, "IPv4", most)
	next(requested, "IPv4", few[4:])
	next(requested, "IPv4", nil)
	next(requested, "IPv4", []byte("end\x00"))

	for _, private := range [][]byte{most[:508], few} {
		c, err := l.Accept()
		assert.NilError(t, err)
		var head [20]byte // of the request, which must be read: else the answer may be lost with the connection
		_, err = io.ReadFull(c, head[:])
		assert.NilError(t, err)
		_, err = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[18:])))
		assert.NilError(t, err)
		_, err = c.Write(setup(mpaReply, mpaReject|mpaEnhanced, 2, append(make([]byte, 4), private...))) // read depths
		assert.NilError(t, err)
		next(rejected, "none", private[4:])
		c.Close()
	}
	assert.Assert(t, lines.Scan() && strings.HasSuffix(lines.Text(), "ok"), lines.Text())
	assert.NilError(t, cmd.Wait())
}
