package cverbs_test

import (
	"fmt"
	"log"
	"time"

	"github.com/godat/godat/cverbs"
)

// Posts two requests to an extended queue pair, in one crossing into C: a write whose inline data
// is copied from three places during the post, and a send whose immediate data tells the peer the
// length. Either both requests are posted, or neither.
func ExamplePD_CreateQP() {
	devices, err := cverbs.Devices()
	check(err)
	if len(devices) == 0 {
		log.Fatal("this host has no verbs device")
	}
	ctx, err := cverbs.OpenDevice(devices[0].Name)
	check(err)
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	check(err)
	defer pd.Close()
	cq, err := ctx.CreateCQ(16, nil, 0)
	check(err)
	defer cq.Close()

	// One buffer contains the parts of the record, and after them the memory that the peer lets us
	// write to.
	buf := make([]byte, 400)
	copy(buf[0:], "name=")
	copy(buf[100:], "godat")
	copy(buf[200:], ";")
	mr, err := pd.RegMR(buf, cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite)
	check(err)
	defer mr.Close()

	// The operations (SendOps) make the queue pairs extended ones.
	qp := connected(ctx, pd, cq, cverbs.WithRDMAWrite|cverbs.WithSendWithImm)
	defer qp[0].Close()
	defer qp[1].Close()
	_, err = qp[1].PostRecv([]cverbs.RecvWR{{ID: 1}}, nil)
	check(err)

	place := func(at, n int) cverbs.SGE { // inline data needs no key
		return cverbs.SGE{Addr: mr.Addr() + uint64(at), Length: uint32(n)}
	}
	_, err = qp[0].PostSend(
		[]cverbs.SendWR{
			{ID: 2, Opcode: cverbs.OpRDMAWrite, Flags: cverbs.SendInline, RemoteAddr: mr.Addr() + 300, RKey: mr.RKey(),
				FirstSGE: 0, NumSGE: 3},
			{ID: 3, Opcode: cverbs.OpSendWithImm, Flags: cverbs.SendSignaled, Imm: 11},
		},
		[]cverbs.SGE{place(0, 5), place(100, 5), place(200, 1)})
	check(err)

	wc := make([]cverbs.WC, 2) // completions of the receive and of the second request
	for got := 0; got < len(wc); time.Sleep(time.Millisecond) {
		n, err := cq.Poll(wc[got:])
		check(err)
		got += n
	}
	for _, c := range wc {
		if c.Status != cverbs.WCSuccess {
			log.Fatalf("request %d: %v", c.ID, c.Status)
		}
		if c.ID == 1 {
			fmt.Println("the peer has", string(buf[300:300+c.Imm]))
		}
	}
	// On a host with a device this prints: the peer has name=godat;
}
