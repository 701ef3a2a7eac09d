package cverbs

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// A C program that prints the Mbit/s and the multiple of each rate, the rates of these values, and
// the UDP ports of flow labels.
const ratesInC = `#include <stdio.h>
#include <infiniband/verbs.h>
int main(void)
{
	for (int i = 0; i < 40; i++) {
		int mbps = ibv_rate_to_mbps(i), mult = ibv_rate_to_mult(i);
		printf("%s[%d,%d,%d,%d,%d]", i ? "," : "[", mbps, mult, mbps_to_ibv_rate(mbps), mult_to_ibv_rate(mult),
			ibv_flow_label_to_udp_sport(i * 0x12345u + 7));
	}
	puts("]");
}
`

// TestRates: the tables are equal to those of libibverbs.
func TestRates(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
	program := filepath.Join(t.TempDir(), "rates")
	cc := exec.Command("cc", "-o", program, "-x", "c", "-", "-libverbs")
	cc.Stdin = strings.NewReader(ratesInC)
	out, err := cc.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	out, err = exec.Command(program).Output()
	assert.NilError(t, err)
	var want [][5]int
	assert.NilError(t, json.Unmarshal(out, &want))
	assert.Equal(t, len(want), 40)
	or := func(n int, ok bool) int {
		if !ok {
			return -1
		}
		return n
	}
	known := 0
	for i, w := range want {
		mbps, mult := or(Rate(i).Mbps()), or(Rate(i).Mult())
		fromMbps, ok := RateOfMbps(mbps)
		assert.Equal(t, ok, mbps != -1)
		fromMult, ok := RateOfMult(mult)
		assert.Equal(t, ok, mult != -1)
		assert.Equal(t, [5]int{mbps, mult, int(fromMbps), int(fromMult), int(FlowLabelUDPPort(uint32(i)*0x12345 + 7))}, w,
			"%v", Rate(i))
		if mbps != -1 {
			known++
		}
	}
	assert.Equal(t, known, 23)
	for _, bad := range []int{0, -1, 2499, 2501, 3} {
		_, ok := RateOfMbps(bad)
		assert.Assert(t, !ok)
	}
	assert.Equal(t, Rate2_5.String(), "2_5_GBPS")
	assert.Equal(t, FlowLabelUDPPort(0xfff00000), uint16(0xc000), "bits above 20 are no label")
}
