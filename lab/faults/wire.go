package main

import (
	"errors"
	"time"
)

// netem returns the function of a scenario: it disturbs the network in both directions during
// traffic. The parameter how is the effect, as the tc command names it. If both ends are on one
// host, only soft-iWARP uses a network: the loopback interface.
func netem(how string) func(*round) error {
	return func(r *round) error {
		reset, err := r.spoil(how)
		if err != nil {
			return err
		}
		began, lasts := time.Now(), time.Duration(0)
		if r.long {
			lasts = 75 * time.Second
		}
		err = r.slowTraffic(150, 20*time.Minute)
		for err == nil && time.Since(began) < lasts {
			err = r.slowTraffic(10, 20*time.Minute)
		}
		if e := reset(); e != nil && err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		return r.leave()
	}
}

// spoil disturbs the network until the caller calls reset.
func (r *round) spoil(how string) (reset func() error, err error) {
	name := "eth0"
	if r.at == "" {
		name = "lo"
	}
	reset = func() error { return r.runEverywhere("tc qdisc del dev " + name + " root") }
	return reset, r.runEverywhere("tc qdisc replace dev " + name + " root netem " + how)
}

// runEverywhere runs a command on every host.
func (r *round) runEverywhere(command string) error {
	if err := r.runHere(command); err != nil || r.at == "" {
		return err
	}
	return r.runThere(command)
}

// runHere runs a command on this host.
func (r *round) runHere(command string) error {
	if text := shell(command); text != "" {
		return errors.New(text)
	}
	return nil
}

// runThere runs a command on the other host.
func (r *round) runThere(command string) error {
	_, err := r.p.do(order{Do: "shell", Shell: command})
	return err
}

const inDriver = "no wire: the driver loops back"

func wireRow(name, how string) scenario {
	return scenario{group: "wire", name: name, act: netem(how),
		promise: unharmed, ends: disconnected, within: soon,
		rounds: map[string][2]int{"siw": {1, 2}, "cable": {1, 2}, "tcphosts": {1, 2}},
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
