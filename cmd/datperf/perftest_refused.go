package main

import (
	"strings"

	"github.com/spf13/pflag"
)

// perftestRefused lists the flags of perftest's programs that datperf refuses. The key is the
// reason. The value is a list of flags. For each flag it contains the name, then a slash and the
// short name if the flag has one, and then = if the flag takes a value.
var perftestRefused = map[string]string{
	"the connection manager takes the route's":                                    "hop_limit/L= flow_label= dlid=",
	"the connection manager takes the path's":                                     "pkey_index=",
	"datperf client ADDRESS,ADDRESS --threads 2 uses two ports":                   "dualport/O report-per-port",
	"the device's completion vectors are not to be chosen here":                   "vector/X=",
	"there is no multicast here":                                                  "mcg/g MGID/M= raw_mcast",
	"times are those of the kernel's clock, in microseconds":                      "report-cycles/C no_lock",
	"single results are not kept; datperf client --json has the distribution":     "report-histogrm/H report-unsorted/U",
	"datperf client -D DURATION --interval TIME reports for as long as one likes": "run_infinitely",
	"datperf client --rate has operations fall due at a rate": "rate_limit= rate_units= rate_limit_type= burst_size= " +
		"typical_pkt_size= latency_gap=",
	"memory is registered and pinned": "odp mmap= mmap-offset= use-null-mr " +
		"payload_file_path=",
	"one memory region serves all queue pairs, with the device's defaults": "mr_per_qp disable_pcie_relaxed use_ooo",
	"warm-up is counted in operations: datperf client --warmup":            "margin/f=",
	"the document of --json has the processor time of both ends":           "cpu_util",
	"datperf client --json FILE has everything":                            "out_json out_json_file= output= report-both",
	"datperf client prints what a run added to the port's counters":        "report-counters/W=",
	"there is no GPU memory here, nor that of other accelerators": "use_cuda= use_cuda_bus_id= use_cuda_dmabuf " +
		"use_cuda_pcie_mapping use_data_direct cuda_mem_type= use_rocm= use_rocm_dmabuf use_musa= use_musa_bus_id= " +
		"use_musa_dmabuf " +
		"use_musa_pcie_mapping use_neuron= use_neuron_dmabuf use_hl= use_mlu= use_mlu_dmabuf use_opencl= " +
		"opencl_platform_id= " +
		"use_ib_dm_dmabuf= gpu_touch=",
	"raw Ethernet is not RDMA": "source_mac/B= dest_mac/E= dest_ip/J= source_ip/j= dest_port/K= source_port/k= " +
		"ethertype/Y= " +
		"server/Z client/P mac_fwd/v use_rss/G remote_mac= local_mac= remote_ip= local_ip= remote_port= local_port= " +
		"tcp raw_ipv6 " +
		"promiscuous sniffer flows= flows_burst= reply_every= vlan_en vlan_pcp= force-link=",
	"datperf client --cpu N pins its loop":        "pin_cores= numa_node= disable_numa cpu_id=",
	"datperf client --verify compares every byte": "data_validation data_validation_debug",
	"the data is not encrypted: IPsec or MACsec of the NIC is below verbs": "aes_xts encrypt_on_tx sig_before " +
		"sig_offload " +
		"aes_block_size= kek_path= credentials_path= data_enc_keys_number= data_enc_key_app_path=",
	"transports of one vendor are not supported": "log_dci_streams= log_active_dci_streams= no_enhanced_reorder " +
		"unsolicited_write connectionless congest_type= tph_mem= ph=",
	"up to 64 completions are taken at once, up to 32 receives posted": "cqe_poll= recv_post_list= " +
		"disable_dynamic_polling",
	"the route chooses the address; --ib-dev takes one too": "bind_source_ip=",
	"datperf --version prints the version":                  "version/V",
	"both ends always exchange their versions":              "dont_xchg_versions",
	"connections end when both ends are done":               "wait_destroy=",
}

// registerRefused adds the refused flags. The help does not list them.
func registerRefused(f *pflag.FlagSet) {
	for why, names := range perftestRefused {
		for _, text := range strings.Fields(names) {
			text, valued := strings.CutSuffix(text, "=")
			name, short, _ := strings.Cut(text, "/")
			if valued {
				f.StringP(name, short, "", "refused: "+why)
			} else {
				f.BoolP(name, short, false, "refused: "+why)
			}
			_ = f.MarkHidden(name)
		}
	}
}

// checkRefused returns an error with the reason if the user gave a refused flag.
func checkRefused(f *pflag.FlagSet) (err error) {
	f.Visit(func(one *pflag.Flag) {
		why, refused := strings.CutPrefix(one.Usage, "refused: ")
		if err != nil || !refused {
			return
		}
		flag := "--" + one.Name
		if one.Value.Type() != "bool" {
			flag += " " + one.Value.String()
		}
		err = usagef("%s: %s", flag, why)
	})
	return err
}

// accepted lists perftest's flags that ask for something that datperf always does.
var accepted = []struct{ name, short, usage string }{
	{"CPU-freq", "F", "accepted: clocks are those of the kernel"},
	{"comm_rdma_cm", "z", "accepted: always so; refused with --peer perftest"},
	{"noPeak", "N", "accepted: the peak is that of the intervals, and costs nothing"},
	{"use_old_post_send", "", "accepted: always so"},
	{"perform_warm_up", "", "accepted: always so"},
	{"ipv6", "", "accepted: addresses of both kinds are taken"},
	{"ipv6-addr", "", "accepted: addresses of both kinds are taken"},
}

func registerAccepted(f *pflag.FlagSet) {
	for _, a := range accepted {
		f.BoolP(a.name, a.short, false, a.usage)
	}
}
