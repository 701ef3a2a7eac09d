package cverbs_test

import (
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/godat/godat/cverbs"
)

// Writes a text into the memory of a peer, which here is a second queue pair on the first device of
// this host.
func Example() {
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

	// One buffer: the text at its start, the place that the peer opens to us behind it.
	buf := make([]byte, 200)
	copy(buf, "written by RDMA")
	mr, err := pd.RegMR(buf, cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite)
	check(err)
	defer mr.Close()

	var qp [2]*cverbs.QP
	for i := range qp {
		qp[i], err = pd.CreateQP(cverbs.QPInit{SendCQ: cq, RecvCQ: cq,
			Cap: cverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
		check(err)
		defer qp[i].Close()
		check(qp[i].ToInit(1, cverbs.AccessRemoteWrite))
	}
	gid, why, err := ctx.BestGID(1)
	check(err)
	log.Print(why)
	for i := range qp {
		attr := cverbs.QPAttr{
			DestQPNum: qp[1-i].Num(), PathMTU: cverbs.MTU1024, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
			MaxRDAtomic: 1, MaxDestRDAtomic: 1,
			AH: cverbs.AHAttr{Port: 1, IsGlobal: true, DGID: gid.GID, SGIDIndex: uint8(gid.Index), HopLimit: 64},
		}
		check(qp[i].ToRTR(attr))
		check(qp[i].ToRTS(attr))
	}

	_, err = qp[0].PostSend(
		[]cverbs.SendWR{{ID: 42, Opcode: cverbs.OpRDMAWrite, Flags: cverbs.SendSignaled, RemoteAddr: mr.Addr() + 100,
			RKey: mr.RKey(), NumSGE: 1}},
		[]cverbs.SGE{{Addr: mr.Addr(), Length: 15, LKey: mr.LKey()}})
	check(err)
	wc := make([]cverbs.WC, 1)
	for {
		n, err := cq.Poll(wc)
		check(err)
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println(wc[0].ID, wc[0].Status, string(buf[100:115]))
	// On a host with a device this prints: 42 SUCCESS written by RDMA
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The example runs where there is a device.
func TestExample(t *testing.T) {
	if all, err := cverbs.Devices(); err != nil || len(all) == 0 || all[0].NodeType != cverbs.NodeCA {
		t.Skipf("no InfiniBand or RoCE device here (%v)", err)
	}
	Example()
}

// Waits for completions without polling: arm the queue, poll until it is empty, because a
// completion may have come before it was armed, and then wait.
func ExampleCompChannel_Wait() {
	var channel *cverbs.CompChannel // of Context.CreateCompChannel
	var cq *cverbs.CQ               // of Context.CreateCQ, with the channel
	handle := func(cverbs.WC) {}

	wc := make([]cverbs.WC, 32)
	for {
		check(cq.Arm(false))
		for {
			n, err := cq.Poll(wc)
			check(err)
			if n == 0 {
				break
			}
			for _, c := range wc[:n] {
				handle(c)
			}
		}
		_, err := channel.Wait(time.Now().Add(10 * time.Second))
		check(err)
	}
}
