package main

import (
	"errors"
	"fmt"
	"time"
)

// netem spoils the wire in both directions during traffic. On one host only soft-iWARP uses a wire:
// the loopback interface.
func netem(how string) func(*round) error {
	return func(r *round) error {
		set, reset := "tc qdisc replace dev eth0 root netem "+how, "tc qdisc del dev eth0 root"
		if r.at == "" {
			set, reset = "tc qdisc replace dev lo root netem "+how, "tc qdisc del dev lo root"
		}
		if err := r.both(set); err != nil {
			return err
		}
		began, lasts := time.Now(), time.Duration(0)
		if r.long {
			lasts = 75 * time.Second
		}
		err := r.slowTraffic(150, 20*time.Minute)
		for err == nil && time.Since(began) < lasts {
			err = r.slowTraffic(10, 20*time.Minute)
		}
		if e := r.both(reset); e != nil && err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		return r.leave()
	}
}

// both runs a command on every host.
func (r *round) both(command string) error {
	if err := r.here(command); err != nil || r.at == "" {
		return err
	}
	return r.there(command)
}

// here runs a command on this host.
func (r *round) here(command string) error {
	if text := shell(command); text != "" {
		return errors.New(text)
	}
	return nil
}

// there runs a command on the other host.
func (r *round) there(command string) error {
	_, err := r.p.do(order{Do: "shell", Shell: command})
	return err
}

// partition cuts the cable between two hosts for some time.
func partition(d time.Duration) func(*round) error {
	return func(r *round) error {
		cut := fmt.Sprintf("(sleep 1; tc qdisc replace dev eth0 root netem loss 100%%; sleep %d; "+
			"tc qdisc del dev eth0 root) >/dev/null 2>&1 </dev/null &", int(d.Seconds()))
		if err := r.both(cut); err != nil {
			return err
		}
		time.Sleep(d + 2*time.Second)
		if err := r.slowTraffic(100, 10*time.Minute); err != nil {
			return err
		}
		return r.leave()
	}
}

func partitionRow(d time.Duration) scenario {
	return scenario{group: "two hosts", name: fmt.Sprintf("partition of %v", d), act: partition(d),
		promise: "no event; the traffic goes on where it stood", ends: disconnected, within: soon,
		rounds: map[string][2]int{"cable": {1, 5}}}
}

// vanish switches the other host off, for longer than the keep-alive's bound of 40 seconds.
func vanish(r *round) error {
	return r.sysrq(`touch "$GODAT_OUT/away"; sync; (sleep 1; echo o >/proc/sysrq-trigger)`)
}

// restart resets the other host, which must be back within the keep-alive's bound.
func restart(r *round) error {
	if err := r.sysrq("(sleep 1; echo b >/proc/sysrq-trigger)"); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	conn, err := dial(r.at)
	if err != nil {
		return err
	}
	conn.Close()
	if took := time.Since(r.began); took > 35*time.Second {
		return fmt.Errorf("the other host is back after %v only: nobody could take it for the one before", took)
	}
	return nil
}

// sysrq ends the other host by a command of its shell.
func (r *round) sysrq(command string) error {
	r.e.mayEnd.Store(true)
	r.began = time.Now()
	_, err := r.p.do(order{Do: "shell", Shell: command + " >/dev/null 2>&1 </dev/null &"})
	return err
}

var hostsGroup = []scenario{partitionRow(time.Second), partitionRow(10 * time.Second),
	{group: "two hosts", name: "the other host starts anew within the keep-alive's bound", act: restart, kills: true,
		promise: "the new host does not answer for the one before: BROKEN by the keep-alive; " +
			"what completed had arrived; all else posted is flushed",
		ends: broken, within: 2 * time.Minute, rounds: map[string][2]int{"cable": {1, 5}}},
	{group: "two hosts", name: "the other host is switched off", act: vanish, kills: true,
		promise: "BROKEN by the keep-alive; what completed had arrived; all else posted is flushed",
		ends:    broken, within: 2 * time.Minute, rounds: map[string][2]int{"cable": {1, 5}}},
}

const inDriver = "no wire: the driver loops back"

func wireRow(name, how string) scenario {
	return scenario{group: "wire", name: name, act: netem(how),
		promise: unharmed, ends: disconnected, within: soon,
		rounds: map[string][2]int{"siw": {1, 2}, "cable": {1, 2}},
		why:    map[string]string{"mem": "no wire", "rxe": inDriver}}
}

var wireGroup = []scenario{
	wireRow("loss of 1 %", "loss 1%"),
	wireRow("loss of 5 %", "loss 5%"),
	wireRow("loss of 10 %", "loss 10%"),
	wireRow("loss of 20 %", "loss 20%"),
	wireRow("duplicates of 50 %", "duplicate 50%"),
	wireRow("reordering of 25 %", "delay 10ms reorder 25% 50%"),
	wireRow("corruption of 10 %", "corrupt 10%"),
	wireRow("delay of 100 ms with 20 ms of jitter", "delay 100ms 20ms"),
	wireRow("1 Mbit/s", "rate 1mbit"),
}
