package rdmanet

import (
	"os"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestLeadPassesOn: a call becomes the leader after another one that waits for the same change and
// has not yet noticed that it is no longer the leader. A deadline must wake the new leader, too.
func TestLeadPassesOn(t *testing.T) {
	client, server := ends(t)
	d := client.d
	leads := func(who leader) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.leader == who
	}
	for range 20 {
		assert.NilError(t, client.SetReadDeadline(time.Time{}))
		first := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = client.Read(make([]byte, 1))
			}
			first <- err
		}()
		for end := time.Now().Add(hostilePatience); ; { // until it leads
			assert.Assert(t, time.Now().Before(end), "the call never leads")
			_, err := server.Write([]byte{1})
			assert.NilError(t, err)
			time.Sleep(5 * time.Millisecond)
			client.mu.Lock()
			if client.readable.leads > 0 && leads(leaderCaller) {
				break
			}
			client.mu.Unlock()
		}
		d.rouse()
		for end := time.Now().Add(100 * time.Millisecond); leads(leaderCaller) && time.Now().Before(end); {
			runtime.Gosched()
		}
		// It has left, and waits for mu: this call leads, if it is not too late.
		time.AfterFunc(5*time.Millisecond, func() { client.SetReadDeadline(time.Unix(1, 0)) })
		rescue := time.AfterFunc(hostilePatience, d.rouse)
		for !client.readEnd.passed {
			client.wait(&client.readable)
		}
		client.mu.Unlock()
		assert.Assert(t, rescue.Stop(), "a deadline has not woken the leader")
		assert.ErrorIs(t, <-first, os.ErrDeadlineExceeded)
	}
}

// TestNobodyLeads: a call that has returned waits no longer. If it still counted as the leader,
// each change of the connection would post an event to rouse it.
func TestNobodyLeads(t *testing.T) {
	client, server := ends(t)
	waits := func() (leads, all int) {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.readable.leads, client.readable.leads + client.readable.n
	}
	led := 0
	for end := time.Now().Add(hostilePatience); led < 3; {
		assert.Assert(t, time.Now().Before(end), "%d calls have led", led)
		read := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			read <- err
		}()
		leads, all := waits()
		for ; all == 0; leads, all = waits() {
			assert.Assert(t, time.Now().Before(end), "the call never waits")
			runtime.Gosched()
		}
		_, err := server.Write([]byte{1})
		assert.NilError(t, err)
		assert.NilError(t, <-read)
		led += leads
		_, all = waits()
		assert.Equal(t, all, 0)
	}
}
