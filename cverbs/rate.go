package cverbs

// Rate is a speed limit of a path in the verbs encoding, for AHAttr.StaticRate.
type Rate uint8

// Rates in Gbit/s, with the values of enum ibv_rate.
const (
	RateMax  Rate = 0 // the port's speed
	Rate2_5  Rate = 2
	Rate5    Rate = 5
	Rate10   Rate = 3
	Rate20   Rate = 6
	Rate30   Rate = 4
	Rate40   Rate = 7
	Rate60   Rate = 8
	Rate80   Rate = 9
	Rate120  Rate = 10
	Rate14   Rate = 11
	Rate56   Rate = 12
	Rate112  Rate = 13
	Rate168  Rate = 14
	Rate25   Rate = 15
	Rate100  Rate = 16
	Rate200  Rate = 17
	Rate300  Rate = 18
	Rate28   Rate = 19
	Rate50   Rate = 20
	Rate400  Rate = 21
	Rate600  Rate = 22
	Rate800  Rate = 23
	Rate1200 Rate = 24
)

var rateNames = map[Rate]string{
	RateMax: "MAX", Rate2_5: "2_5_GBPS", Rate5: "5_GBPS", Rate10: "10_GBPS", Rate20: "20_GBPS", Rate30: "30_GBPS",
	Rate40: "40_GBPS", Rate60: "60_GBPS", Rate80: "80_GBPS", Rate120: "120_GBPS", Rate14: "14_GBPS",
	Rate56: "56_GBPS", Rate112: "112_GBPS", Rate168: "168_GBPS", Rate25: "25_GBPS", Rate100: "100_GBPS",
	Rate200: "200_GBPS", Rate300: "300_GBPS", Rate28: "28_GBPS", Rate50: "50_GBPS", Rate400: "400_GBPS",
	Rate600: "600_GBPS", Rate800: "800_GBPS", Rate1200: "1200_GBPS",
}

// rateMbps has the Mbit/s of each rate, as ibv_rate_to_mbps returns them.
var rateMbps = map[Rate]int{
	Rate2_5: 2500, Rate5: 5000, Rate10: 10000, Rate20: 20000, Rate30: 30000, Rate40: 40000, Rate60: 60000,
	Rate80: 80000, Rate120: 120000, Rate14: 14062, Rate56: 56250, Rate112: 112500, Rate168: 168750, Rate25: 25781,
	Rate100: 103125, Rate200: 206250, Rate300: 309375, Rate28: 28125, Rate50: 53125, Rate400: 425000,
	Rate600: 637500, Rate800: 850000, Rate1200: 1275000,
}

// rateMult has each rate as a multiple of 2.5 Gbit/s, if libibverbs defines the multiple.
var rateMult = map[Rate]int{
	Rate2_5: 1, Rate5: 2, Rate10: 4, Rate20: 8, Rate30: 12, Rate40: 16, Rate60: 24, Rate80: 32, Rate120: 48,
	Rate28: 11, Rate50: 20, Rate400: 160, Rate600: 240, Rate800: 320, Rate1200: 480,
}

// String returns the verbs name without its prefix.
//
// Extension.
func (r Rate) String() string { return enumName(rateNames, r, "Rate") }

// Mbps returns the rate in Mbit/s. ok is false for RateMax and for values that are no rate.
//
// Implements: ibv_rate_to_mbps.
func (r Rate) Mbps() (mbps int, ok bool) {
	mbps, ok = rateMbps[r]
	return mbps, ok
}

// Mult returns the rate as a multiple of 2.5 Gbit/s. ok is false for RateMax, for rates without a
// multiple, and for values that are no rate.
//
// Implements: ibv_rate_to_mult.
func (r Rate) Mult() (mult int, ok bool) {
	mult, ok = rateMult[r]
	return mult, ok
}

// RateOfMbps returns the rate of exactly mbps Mbit/s (5000, 103125, ...). If there is no such rate,
// ok is false and the rate is RateMax.
//
// Implements: mbps_to_ibv_rate.
func RateOfMbps(mbps int) (r Rate, ok bool) { return rateOf(rateMbps, mbps) }

// RateOfMult returns the rate that is mult times 2.5 Gbit/s. If there is no such rate, ok is false
// and the rate is RateMax.
//
// Implements: mult_to_ibv_rate.
func RateOfMult(mult int) (r Rate, ok bool) { return rateOf(rateMult, mult) }

func rateOf(rates map[Rate]int, n int) (Rate, bool) {
	for r, m := range rates {
		if m == n {
			return r, true
		}
	}
	return RateMax, false
}

// FlowLabelUDPPort returns the UDP source port of RoCE v2 packets with this flow label. The port is
// 49152 to 65535. Only the label's low 20 bits are used.
//
// Implements: ibv_flow_label_to_udp_sport.
func FlowLabelUDPPort(label uint32) uint16 {
	return uint16(label&0x3fff^label&0xfc000>>14) | 0xc000
}

// RateLimit bounds the speed at which a queue pair sends.
type RateLimit struct {
	Kbps          uint32 // kbit/s, between DeviceAttr.RateLimitMin and RateLimitMax; 0: no limit
	MaxBurst      uint32 // bytes sent at once; 0: the device's default
	TypicalPacket uint16 // bytes; 0: the port's MTU
}
