package cverbs_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/godat/godat/cverbs"
)

// Writes a text into the memory of a peer. Here the peer is a second queue pair on the same device,
// the first one of this host.
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

	// One buffer contains the text, and after it the memory that the peer lets us write to.
	buf := make([]byte, 200)
	copy(buf, "written by RDMA")
	mr, err := pd.RegMR(buf, cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite)
	check(err)
	defer mr.Close()

	qp := connected(ctx, pd, cq, 0)
	defer qp[0].Close()
	defer qp[1].Close()

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

// connected creates two queue pairs that are connected to each other. If ops is not 0 they are
// extended queue pairs.
func connected(ctx *cverbs.Context, pd *cverbs.PD, cq *cverbs.CQ, ops cverbs.SendOps) (qp [2]*cverbs.QP) {
	init := cverbs.QPInit{SendCQ: cq, RecvCQ: cq, SendOps: ops,
		Cap: cverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if ops != 0 {
		init.Cap.MaxInline = 64
	}
	var err error
	for i := range qp {
		qp[i], err = pd.CreateQP(init)
		check(err)
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
	return qp
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Registers more memory than is in use. With on-demand paging the pages of the memory are not
// pinned, but mapped when the device uses them. A device without on-demand paging pins the memory.
func ExamplePD_AdviseMR() {
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

	attr, err := ctx.QueryDevice()
	check(err)
	access := cverbs.AccessLocalWrite | cverbs.AccessRemoteWrite
	if attr.ODPGeneralCaps&cverbs.ODPSupport != 0 {
		access |= cverbs.AccessOnDemand
		log.Printf("on-demand paging for RC: %v", attr.ODPRCCaps)
	} else {
		log.Printf("%s has no on-demand paging: the memory is pinned", ctx.Name())
	}
	mr, err := pd.RegMR(make([]byte, 1<<20), access)
	check(err)
	defer mr.Close()

	// The first pages will be used soon, so let the device map them now.
	soon := cverbs.SGE{Addr: mr.Addr(), Length: 64 << 10, LKey: mr.LKey()}
	err = pd.AdviseMR(cverbs.AdvicePrefetchWrite, cverbs.AdviseFlush, []cverbs.SGE{soon})
	if err != nil && !errors.Is(err, cverbs.ErrNotSupported) {
		log.Fatal(err)
	}
	fmt.Println(mr.Len(), "bytes are registered")
	// On a host with a device this prints: 1048576 bytes are registered
}

// Waits for completions without busy polling: arms the queue, polls until the queue is empty, and
// then waits. The polls are necessary because a completion may have come before the queue was
// armed.
func ExampleCompChannel_Wait() {
	var channel *cverbs.CompChannel // from Context.CreateCompChannel
	var cq *cverbs.CQ               // from Context.CreateCQ, with the channel
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
