package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Schema is the format of Document. Parse refuses other formats.
const Schema = "datperf/1"

// Document is the result of one datperf command.
type Document struct {
	Schema  string            `json:"schema"`
	Version string            `json:"datperf_version"`
	Started time.Time         `json:"started"`
	Title   string            `json:"title,omitempty"`
	Command []string          `json:"command,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Units   map[string]string `json:"units"`
	Client  Facts             `json:"client"`
	Server  Facts             `json:"server"`
	Runs    []Run             `json:"runs"`
	Summary []Summary         `json:"summary,omitempty"` // summaries of repeated cases

	Incomplete *Incomplete `json:"incomplete,omitempty"` // nil: the document has all runs of the plan

	Mesh *Mesh `json:"mesh,omitempty"` // results of datperf mesh
}

// Incomplete says that a plan ended early.
type Incomplete struct {
	Planned   int        `json:"planned_runs"`
	Why       string     `json:"why"`
	Case      *Case      `json:"settings,omitempty"`  // the case of the run that failed
	Repeat    int        `json:"repeat,omitempty"`    // as Run.Repeat
	Intervals []Interval `json:"intervals,omitempty"` // what both ends had measured in the run that failed
}

// String returns a sentence without a period.
func (i *Incomplete) String() string {
	return fmt.Sprintf("the plan of %s is incomplete: %s", Count(i.Planned, "run"), i.Why)
}

// NewDocument returns a document without results. The parameter version is that of datperf. The
// document's start time is now.
func NewDocument(version string) *Document {
	return &Document{Schema: Schema, Version: version, Started: time.Now().UTC().Truncate(time.Second), Units: Units,
		Runs: []Run{}}
}

// Now returns the time for a run, an interval or an event of a document.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Units explains the suffixes of the document's field names.
var Units = map[string]string{
	"_ns":    "nanoseconds",
	"_s":     "seconds",
	"_bytes": "bytes",
	"gbit_s": "10^9 bits of payload per second",
	"mib_s":  "2^20 bytes of payload per second",
	"ops_s":  "operations per second",
	"latency": "of ping-pong tests (send, write, with or without immediate data) half the round trip; " +
		"of read and atomics the whole operation",
	"cpu_s":  "processor seconds, user and system, of the whole process",
	"_per_s": "per second",
	"counters": "changes of the kernel's counters during the run, where not zero: of the port, by the kernel's names " +
		"and in its units (port_xmit_data and port_rcv_data are words of 4 bytes), and of its network device, from its " +
		"statistics (netdev_) and its driver (ethtool_)",
}

// Facts describe one end.
type Facts struct {
	Host          string   `json:"host"`
	OS            string   `json:"os"`
	Arch          string   `json:"arch"`
	Kernel        string   `json:"kernel,omitempty"`
	CPU           string   `json:"cpu,omitempty"`
	CPUs          int      `json:"cpus"`
	Governor      string   `json:"cpu_governor,omitempty"`
	GoVersion     string   `json:"go_version"`
	GOMAXPROCS    int      `json:"gomaxprocs"`
	GODEBUG       string   `json:"godebug,omitempty"`
	Version       string   `json:"datperf_version"`
	Libibverbs    string   `json:"libibverbs,omitempty"`
	PinnedCPU     string   `json:"pinned_cpu,omitempty"`      // processor of the measuring loop
	BoundNode     string   `json:"bound_numa_node,omitempty"` // NUMA node on whose processors the loop runs
	NUMANode      string   `json:"numa_node,omitempty"`       // NUMA node of the device, if the kernel knows it
	Fabric        string   `json:"fabric"`
	Device        string   `json:"device"`
	Chosen        string   `json:"device_chosen_because"`
	Address       string   `json:"address,omitempty"`
	Detail        string   `json:"detail,omitempty"`
	TLS           bool     `json:"tls,omitempty"`  // the connections that are measured go over it
	Link          string   `json:"link,omitempty"` // speed of the port or network interface
	Firmware      string   `json:"firmware,omitempty"`
	LinkLayer     string   `json:"link_layer,omitempty"`
	PortState     string   `json:"port_state,omitempty"`
	MTU           int      `json:"mtu_bytes,omitempty"`
	GID           string   `json:"gid,omitempty"`
	GIDIndex      int      `json:"gid_index,omitempty"`
	GIDType       string   `json:"gid_type,omitempty"`
	GIDReason     string   `json:"gid_chosen_because,omitempty"`
	MaxReadDepth  int      `json:"max_read_depth,omitempty"`
	MaxMessage    int      `json:"max_message_bytes,omitempty"`
	MaxQueueDepth int      `json:"max_queue_depth,omitempty"`
	Atomics       string   `json:"atomics,omitempty"`
	ClockStep     Seconds  `json:"clock_step_s"`            // smallest step of the monotonic clock
	MemlockBytes  int64    `json:"memlock_bytes,omitempty"` // -1: no limit
	Warnings      []string `json:"warnings,omitempty"`
}

// Run is a Case and its results. If a case is repeated, each repeat is a Run with the same Case.
type Run struct {
	Case    Case      `json:"settings"`
	Repeat  int       `json:"repeat,omitempty"` // from 1; 0 if the case was not repeated
	Started time.Time `json:"started,omitzero"` // when the client began the run, by its clock
	Client  *End      `json:"client"`
	Server  *End      `json:"server"`
	Notes   Notes     `json:"notes,omitempty"`
}

// Notes are remarks for the reader of the figures.
type Notes []string

// End contains the results that one end measured.
type End struct {
	Initiated *Stream    `json:"initiated,omitempty"`     // operations that this end initiated
	Received  *Stream    `json:"received,omitempty"`      // messages that consumed receives at this end
	Lost      int64      `json:"lost_messages,omitempty"` // uc, ud: messages that did not arrive, warm-up included
	Verified  int64      `json:"verified_messages"`       // messages whose payload was compared byte by byte and was right
	Cost      Cost       `json:"cost"`
	Counters  Counters   `json:"counters,omitempty"`
	Path      *Path      `json:"path,omitempty"` // nil if the fabric has no packets
	Intervals []Interval `json:"intervals,omitempty"`
	Notes     Notes      `json:"notes,omitempty"`
}

// Stream contains the figures of one direction, without the warm-up.
type Stream struct {
	Ops       int64         `json:"operations"`
	Bytes     int64         `json:"payload_bytes"`
	Elapsed   Seconds       `json:"elapsed_s"`
	GbitS     float64       `json:"gbit_s"`
	MiBS      float64       `json:"mib_s"`
	OpsS      float64       `json:"ops_s"`
	Latency   *Distribution `json:"latency,omitempty"`
	RoundTrip *Distribution `json:"round_trip,omitempty"` // ping-pong tests only
	Corrected *Distribution `json:"latency_corrected,omitempty"`
}

// Fill computes the rates from the other figures.
func (s *Stream) Fill() {
	if t := time.Duration(s.Elapsed).Seconds(); t > 0 {
		s.GbitS = float64(s.Bytes) * 8 / 1e9 / t
		s.MiBS = float64(s.Bytes) / (1 << 20) / t
		s.OpsS = float64(s.Ops) / t
	}
}

// Distribution describes a set of times. The minimum, maximum, mean and standard deviation are
// exact. Percentiles have three significant digits, bounds of buckets two.
type Distribution struct {
	Count       int64        `json:"count"`
	Min         float64      `json:"min_ns"`
	Mean        float64      `json:"mean_ns"`
	Stddev      float64      `json:"stddev_ns"`
	Percentiles []Percentile `json:"percentiles"`
	Max         float64      `json:"max_ns"`
	Histogram   []Bucket     `json:"histogram,omitempty"` // ascending; without empty buckets
}

// Bucket is the number of samples that are at most UpTo, and above the UpTo of the bucket before.
type Bucket struct {
	UpTo  float64 `json:"up_to_ns"`
	Count int64   `json:"count"`
}

// Percentile is a value that P percent of the samples do not exceed.
type Percentile struct {
	P     float64 `json:"percentile"`
	Value float64 `json:"value_ns"`
}

// At returns the value of the percentile p. It returns 0 if d is nil or does not contain p.
func (d *Distribution) At(p float64) float64 {
	if d != nil {
		for _, q := range d.Percentiles {
			if q.P == p {
				return q.Value
			}
		}
	}
	return 0
}

// Enough reports whether there are enough samples for a percentile to differ from the maximum. That
// takes 10 samples for p90, and 10,000 samples for p99.99. Enough returns true if the number of
// samples is unknown, and false if d is nil.
func (d *Distribution) Enough(p float64) bool {
	return d != nil && (d.Count == 0 || math.Round(float64(d.Count)*(100-p)*1e3) >= 100e3)
}

// TooShort is the shortest time of a meaningful measurement. In a shorter one, a single
// interruption by the operating system would dominate the result.
const TooShort = Seconds(10 * time.Millisecond)

// Short reports whether the measurement took less than TooShort. It returns false if the duration
// is unknown.
func (s *Stream) Short() bool { return s.Elapsed > 0 && s.Elapsed < TooShort }

// Cost contains the resources that the process used during the run. They include the resources that
// the cases of other clients used at the same time.
type Cost struct {
	CPU         Seconds `json:"cpu_s"`
	UserCPU     Seconds `json:"user_cpu_s"`
	Wall        Seconds `json:"wall_s"`
	PerMillion  float64 `json:"cpu_s_per_million_operations,omitempty"`
	PerGB       float64 `json:"cpu_s_per_gb,omitempty"`
	Voluntary   int64   `json:"voluntary_context_switches"`
	Involuntary int64   `json:"involuntary_context_switches"`
	Allocations int64   `json:"heap_allocations"`
	GCs         int64   `json:"gc_cycles"`
	GCPause     Seconds `json:"gc_pause_s"`
}

// Interval contains an initiator's figures for one part of the run.
type Interval struct {
	End   string    `json:"end,omitempty"`  // client or server
	Ended time.Time `json:"ended,omitzero"` // when it ended, or the client heard of it, by the client's clock
	Start Seconds   `json:"start_s"`
	Stop  Seconds   `json:"stop_s"`
	Ops   int64     `json:"operations"`
	Bytes int64     `json:"payload_bytes"`
	GbitS float64   `json:"gbit_s"`
	P50   float64   `json:"p50_ns,omitempty"`
	P99   float64   `json:"p99_ns,omitempty"`
	Max   float64   `json:"max_ns,omitempty"`
}

// Whole reports whether the interval has the length that the case asks for. The last interval of a
// run may be shorter, because it ends with the run.
func (iv *Interval) Whole(c *Case) bool { return iv.Stop-iv.Start >= c.Interval }

// Cases returns the settings of the runs, in their order.
func (d *Document) Cases() (all []Case) {
	for i := range d.Runs {
		all = append(all, d.Runs[i].Case)
	}
	return all
}

// Write writes the document as JSON.
func (d *Document) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}

// ReadFile reads and checks a document.
func ReadFile(name string) (*Document, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	d, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Parse decodes and checks a document, and makes its texts safe to print.
func Parse(data []byte) (*Document, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("not a datperf document: %w", err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("schema is %q, this datperf reads %q", head.Schema, Schema)
	}
	d := new(Document)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	if len(d.Runs) == 0 && d.Mesh == nil && d.Incomplete == nil {
		return nil, errors.New("the document has no runs")
	}
	for i := range d.Runs {
		if err := d.Runs[i].Validate(); err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
	}
	if d.Mesh != nil {
		if err := d.Mesh.validate(); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	Clean(d)
	return d, nil
}

// Flow is one direction of a run. In direction Out the client initiates the operations. In
// direction In the server initiates them.
type Flow struct {
	Direction string
	Stream    *Stream
	Initiator *End
	Target    *End
}

// Flows returns the directions that were measured.
func (r *Run) Flows() []Flow {
	var f []Flow
	if r.Client != nil && r.Client.Initiated != nil {
		f = append(f, Flow{Out, r.Client.Initiated, r.Client, r.Server})
	}
	if r.Server != nil && r.Server.Initiated != nil {
		f = append(f, Flow{In, r.Server.Initiated, r.Server, r.Client})
	}
	return f
}

// Validate returns an error if the run lacks what reports and comparisons need.
func (r *Run) Validate() error {
	flows := r.Flows()
	if !slices.Contains(Modes, r.Case.Mode) {
		return fmt.Errorf("its mode is %q: must be one of %s", r.Case.Mode, strings.Join(Modes, ", "))
	}
	for _, f := range flows {
		if r.Case.Mode == Latency && f.Stream.Latency == nil {
			return errors.New("it has no latency in it, although that is what was measured")
		}
	}
	if len(flows) == 0 {
		return errors.New("it has no measurement in it")
	}
	return nil
}

// Total returns the sum of the directions. If there are two, the elapsed time is the longer one,
// and the latency is that of the direction with the higher median.
func (r *Run) Total() Stream {
	flows := r.Flows()
	if len(flows) == 1 {
		return *flows[0].Stream
	}
	var t Stream
	for _, f := range flows {
		t.Ops += f.Stream.Ops
		t.Bytes += f.Stream.Bytes
		t.Elapsed = max(t.Elapsed, f.Stream.Elapsed)
		t.GbitS += f.Stream.GbitS
		t.MiBS += f.Stream.MiBS
		t.OpsS += f.Stream.OpsS
		if t.Latency == nil || f.Stream.Latency.At(50) > t.Latency.At(50) {
			t.Latency, t.Corrected = f.Stream.Latency, f.Stream.Corrected
		}
	}
	return t
}
