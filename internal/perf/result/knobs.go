package result

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Knobs are settings of a connection's path. If a knob is unset, the connection manager or the
// library chooses the value.
type Knobs struct {
	TOS     Knob `json:"tos,omitzero"`         // IP type of service, or traffic class: DSCP << 2
	SL      Knob `json:"sl,omitzero"`          // service level; on RoCE the VLAN priority
	MTU     Knob `json:"mtu_bytes,omitzero"`   // path MTU
	Retry   Knob `json:"retry,omitzero"`       // retries without an acknowledgement
	Timeout Knob `json:"ack_timeout,omitzero"` // time to wait for an acknowledgement: 4.096 us << Timeout; 0: forever
	RNR     Knob `json:"rnr_retry,omitzero"`   // retries if the peer has posted no receive; 7: no limit
}

// Knob is an optional number. The zero Knob is unset.
type Knob struct {
	n   int
	set bool
}

// Set returns a Knob that is set to n.
func Set(n int) Knob { return Knob{n, true} }

// Get returns the number and true, or 0 and false if the Knob is unset.
func (k Knob) Get() (int, bool) { return k.n, k.set }

// Ptr returns a pointer to the number, or nil if the Knob is unset.
func (k Knob) Ptr() *int {
	if !k.set {
		return nil
	}
	return &k.n
}

// Or returns the number, or n if the Knob is unset.
func (k Knob) Or(n int) int {
	if k.set {
		return k.n
	}
	return n
}

// Byte returns the number, or nil if the Knob is unset.
func (k Knob) Byte() *uint8 {
	if !k.set {
		return nil
	}
	b := uint8(k.n)
	return &b
}

// MarshalJSON writes the number, or null.
func (k Knob) MarshalJSON() ([]byte, error) {
	if !k.set {
		return []byte("null"), nil
	}
	return json.Marshal(k.n)
}

// UnmarshalJSON reads a number, or null.
func (k *Knob) UnmarshalJSON(b []byte) error {
	var n *int
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*k = Knob{}
	if n != nil {
		*k = Set(*n)
	}
	return nil
}

// KnobFlag is the value of a command-line flag that sets a Knob. It implements pflag.Value.
type KnobFlag struct {
	*Knob
	Scale int // the Knob is the flag's number times Scale; 0 means 1
	Most  int // limit of the flag's number; 0: only Validate checks it
}

// String returns the number in the flag's unit, or "" if the Knob is unset.
func (f KnobFlag) String() string {
	if f.Knob == nil || !f.set {
		return ""
	}
	return strconv.Itoa(f.n / max(f.Scale, 1))
}

// Type returns the name of the type in the help text.
func (f KnobFlag) Type() string { return "int" }

// Set parses a number.
func (f KnobFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	if f.Most > 0 && (n < 0 || n > int64(f.Most)) {
		return fmt.Errorf("must be from 0 to %d", f.Most)
	}
	*f.Knob = Set(int(n) * max(f.Scale, 1))
	return nil
}

// list returns the knobs that are set, with their flags and limits.
func (k *Knobs) list() (set []knobRange) {
	for _, r := range []knobRange{
		{"tos", k.TOS, 0, 255}, {"sl", k.SL, 0, 15}, {"mtu", k.MTU, 256, 4096}, {"retry", k.Retry, 0, 7},
		{"timeout", k.Timeout, 0, 31}, {"rnr", k.RNR, 0, 7},
	} {
		if r.set {
			set = append(set, r)
		}
	}
	return set
}

type knobRange struct {
	flag string
	Knob
	low, high int
}

func (k *Knobs) validate() error {
	for _, r := range k.list() {
		switch {
		case r.flag == "mtu" && (r.n&(r.n-1) != 0 || r.n < r.low || r.n > r.high):
			return fmt.Errorf("--mtu %d: must be 256, 512, 1024, 2048 or 4096", r.n)
		case r.n < r.low || r.n > r.high:
			return fmt.Errorf("--%s %d: must be from %d to %d", r.flag, r.n, r.low, r.high)
		}
	}
	return nil
}

// Able returns an error for the first knob that is set but that the device does not have. The
// parameter has lists the flags of its knobs; nil: all. The parameter mtu is the MTU of the port,
// or 0 if it is unknown; --mtu must not exceed it. The parameter who is the name of the device for
// the error.
func (k *Knobs) Able(has []string, mtu int, who string) error {
	for _, r := range k.list() {
		switch {
		case has != nil && !slices.Contains(has, r.flag):
			return fmt.Errorf("--%s %d: %s has no such setting, only --%s", r.flag, r.n, who, strings.Join(has, ", --"))
		case r.flag == "mtu" && mtu > 0 && r.n > mtu:
			return fmt.Errorf("--mtu %d: the path MTU of %s is %d", r.n, who, mtu)
		}
	}
	return nil
}

// Path contains the settings of an end's first connection, as the device reports them.
type Path struct {
	MTU        int   `json:"mtu_bytes"`
	TOS        uint8 `json:"tos"`
	SL         uint8 `json:"sl"`
	GIDIndex   uint8 `json:"gid_index"`
	AckTimeout uint8 `json:"ack_timeout"`
	Retry      uint8 `json:"retry"`
	RNRRetry   uint8 `json:"rnr_retry"`
}
