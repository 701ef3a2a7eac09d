package iwarp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/godat/godat/udat/internal/tcpfabric/tshark"
	"gotest.tools/v3/assert"
)

// sent is a frame of a conversation.
type sent struct {
	from    int
	header  Header
	payload int
}

// conversation returns messages of every kind, of many sizes, from both ends.
func conversation() (all []sent) {
	all = append(all, sent{0, Header{Op: OpWrite, Last: true}, 0}) // a ready message
	for _, size := range []int{0, 1, 2, 3, 4, 5, 8, 100, 1000, 1448, 1449, 4096, 65000, MaxSegment - untaggedSize} {
		for from := range 2 {
			all = append(all, sent{from, Header{Op: OpSend, Last: size < 4096, MSN: uint32(size), MO: uint32(size)}, size},
				sent{from, Header{Op: OpWrite, Last: size < 4096, Key: 0x1234, Offset: 0x7f0000001000}, size},
				sent{1 - from, Header{Op: OpReadResponse, Last: size < 4096, Key: 0x1234, Offset: 0x7f0000001000}, size})
		}
	}
	for i, f := range frames {
		if f.header.Op != OpTerminate {
			all = append(all, sent{i % 2, f.header, min(f.header.Payload, 40)})
		}
	}
	return all
}

// shown returns what tshark shows of the headers.
func shown(s sent) map[string]string {
	h, segment := s.header, -lengthSize+s.payload
	h.Payload = s.payload
	segment += h.Put(make([]byte, MaxHeader)) // the golden frames prove Put
	hex := func(v uint64, digits int) string { return fmt.Sprintf("0x%0*x", digits, v) }
	flag := map[bool]string{false: "0", true: "1"}
	m := map[string]string{"ulpdulength": fmt.Sprint(segment), "last_flag": flag[h.Last], "opcode": hex(uint64(h.Op), 2)}
	set := func(name string, v any) { m[name] = fmt.Sprint(v) }
	if h.Op.Tagged() {
		set("stag", hex(uint64(h.Key), 8))
		set("tagged_offset", hex(h.Offset, 16))
		return m
	}
	set("qn", h.Op.Queue())
	set("msn", h.MSN)
	set("mo", h.MO)
	switch h.Op {
	case OpSendInv, OpSendSEInv:
		set("inval_stag", h.Word)
	case OpReadRequest:
		set("sinkstag", hex(uint64(h.SinkKey), 8))
		set("sinkto", hex(h.SinkOffset, 16))
		set("rdmardsz", h.Length)
		set("srcstag", hex(uint64(h.Key), 8))
		set("srcto", hex(h.Offset, 16))
	case OpAtomicRequest:
		set("atomic.opcode", uint8(h.Atomic))
		set("atomic.request_identifier", h.ID)
		set("atomic.remote_stag", h.Key)
		set("atomic.remote_tagged_offset", h.Offset)
		set(map[Atomic]string{FetchAdd: "atomic.add_data", CmpSwap: "atomic.swap_data"}[h.Atomic], h.Operand)
		set("atomic.compare_data", h.Compare)
	case OpAtomicResponse:
		set("atomic.original_request_identifier", h.ID)
		set("atomic.original_remote_data_value", h.Value)
	}
	return m
}

// TestTshark: Wireshark decodes every frame as it was meant, with checksums and without, whole or
// split by TCP.
func TestTshark(t *testing.T) {
	for _, crc := range []bool{true, false} {
		for _, mss := range []int{1448, 65495} {
			t.Run(fmt.Sprintf("crc=%t,mss=%d", crc, mss), func(t *testing.T) {
				c := tshark.New()
				n := c.Connect()
				for from := range 2 {
					s := Setup{Reply: from == 1, Revision: 2, CRC: crc, Extended: true, Enhanced: true, In: 4, Out: 5,
						PeerToPeer: true, ReadyWrite: true, Private: []byte("private")}
					frame, err := s.Append(nil)
					assert.NilError(t, err)
					n.Send(from, frame, mss)
				}
				want := []map[string]string{}
				for _, s := range conversation() {
					n.Send(s.from, build(s.header, bytes.Repeat([]byte{0xEE}, s.payload), crc), mss)
					want = append(want, shown(s))
				}
				var head [MaxHeader]byte
				var payload [MaxTerminate]byte
				read := Header{Op: OpReadRequest, MSN: 7, Key: 0xBAD}
				size := PutTerminate(payload[:], FaultAccess, head[:read.Put(head[:])])
				n.Send(1, build(Header{Op: OpTerminate, MSN: 1}, payload[:size], crc), mss)
				n.Close(1)

				v := c.Judge(t)
				assert.DeepEqual(t, v.Malformed, []string(nil))
				setup := map[string]string{"rev": "2", "rej_flag": "0", "pdlength": "11",
					"crc_flag": map[bool]string{true: "1", false: "0"}[crc]}
				for i, data := range []string{"80048005", "80048005"} {
					expect := maps.Clone(setup)
					expect["privatedata"] = data + fmt.Sprintf("%x", "private")
					assert.DeepEqual(t, v.Frames[i], expect)
				}
				last := len(v.Frames) - 1
				assert.DeepEqual(t, v.Frames[2:last], want)
				assert.DeepEqual(t, v.Frames[last], map[string]string{"ulpdulength": fmt.Sprint(untaggedSize + size),
					"last_flag": "1", "opcode": "0x07", "qn": "2", "msn": "1", "mo": "0", "term_layer": "0x00",
					"term_errcode_rdma": "0x02"})
				checked := 0
				if crc {
					checked = len(want) + 1
				}
				assert.Equal(t, v.GoodCRC, checked)
				assert.Equal(t, v.BadCRC, 0)
			})
		}
	}
}

// TestTsharkRejects: a reject and a set-up of revision 1 are decoded too.
func TestTsharkRejects(t *testing.T) {
	c := tshark.New()
	for _, rev := range []uint8{1, 2} {
		n := c.Connect()
		for from := range 2 {
			s := Setup{Reply: from == 1, Reject: from == 1, Revision: rev, Private: []byte{0xAB}}
			frame, err := s.Append(nil)
			assert.NilError(t, err)
			n.Send(from, frame, 1448)
		}
		n.Close(1)
	}
	want := []map[string]string{}
	for i := range 4 {
		want = append(want, map[string]string{"rev": fmt.Sprint(1 + i/2), "crc_flag": "0", "pdlength": "1",
			"privatedata": "ab", "rej_flag": fmt.Sprint(i % 2)})
	}
	assert.DeepEqual(t, c.Judge(t).Frames, want)
}

// TestTsharkNotices: tshark detects a wrong checksum, in the frame that has it, and a frame whose
// header is cut off.
func TestTsharkNotices(t *testing.T) {
	c := tshark.New()
	n := c.Connect()
	for from := range 2 {
		s := Setup{Reply: from == 1, Revision: 1, CRC: true}
		frame, err := s.Append(nil)
		assert.NilError(t, err)
		n.Send(from, frame, 1448)
	}
	good := build(Header{Op: OpSend, Last: true, MSN: 1}, []byte("payload"), true)
	wrong := slices.Clone(good)
	wrong[25] ^= 1
	n.Send(0, good, 1448)
	n.Send(0, wrong, 1448)
	n.Send(0, append([]byte{0, 10, 0x41, 0x41}, make([]byte, 12)...), 1448)
	v := c.Judge(t)
	assert.Equal(t, v.GoodCRC, 1)
	assert.Equal(t, v.BadCRC, 2)
	assert.Equal(t, len(v.Malformed), 1)
}
