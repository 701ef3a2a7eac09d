package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules lists the kernel modules that userspace verbs need. Each module has a file that exists if
// the module is loaded.
var modules = []struct{ name, sign, why string }{
	{"ib_uverbs", "sys/class/infiniband_verbs", "programs reach devices through it"},
	{"rdma_ucm", "sys/class/misc/rdma_cm", "programs connect through it"},
}

const softDevice = "load the device's driver; without RDMA hardware make a soft-RoCE device: " +
	"modprobe rdma_rxe, rdma link add rxe0 type rxe netdev NETDEV; " + useSoftware

func (d *doctor) modules() {
	if !d.exists("sys/class") {
		d.find(Note, "mount -t sysfs none /sys", "/sys is not mounted: the kernel's modules and settings were not examined")
		return
	}
	if !d.exists("sys/class/infiniband") {
		d.find(Fail, softDevice, "the kernel has no RDMA: /sys/class/infiniband is not there")
		return
	}
	for _, m := range modules {
		if d.exists(m.sign) || d.exists("sys/module/"+m.name) {
			d.find(OK, "", "kernel module %s is there", m.name)
		} else {
			d.find(Fail, "modprobe "+m.name, "kernel module %s is not loaded: %s", m.name, m.why)
		}
	}
	d.files()
}

// verbsFile describes a device file that should be in /dev/infiniband: the name of the RDMA device,
// the name of the file, and the device number in the form of sysfs (major:minor).
type verbsFile struct{ device, name, number string }

// verbsFiles returns the device files that the RDMA devices of this network namespace should have.
func (d *doctor) verbsFiles() (all []verbsFile) {
	dirs, _ := filepath.Glob(d.path("sys/class/infiniband_verbs/uverbs*"))
	for _, dir := range dirs {
		name := filepath.Base(dir)
		of := func(file string) string { return d.line("sys/class/infiniband_verbs/" + name + "/" + file) }
		if device := of("ibdev"); d.exists("sys/class/infiniband/" + device) {
			all = append(all, verbsFile{device, name, of("dev")})
		}
	}
	return all
}

// files checks that the device files of verbs exist, have the right device numbers, and can be
// opened.
func (d *doctor) files() {
	const folder = "dev/infiniband"
	const container = "; in a container: --device /dev/infiniband"
	for _, f := range d.verbsFiles() {
		path := d.path(folder + "/" + f.name)
		major, minor, err := d.kernel.number(path)
		switch {
		case os.IsNotExist(err):
			d.find(Fail, "udev makes it, or mknod "+path+" c "+strings.Replace(f.number, ":", " ", 1)+container,
				"%s cannot be used: its device file %s is not there", f.device, path)
			d.unusable = append(d.unusable, f.device)
		case err == nil && f.number != "" && f.number != fmt.Sprintf("%d:%d", major, minor):
			d.find(Fail, "remove it; udev makes it anew, or mknod "+path+" c "+strings.Replace(f.number, ":", " ", 1),
				"%s cannot be used: %s is the file of another device, %d:%d instead of %s", f.device, path, major, minor, f.number)
			d.unusable = append(d.unusable, f.device)
		default:
			d.opens(path, container)
		}
	}
	d.opens(d.path(folder+"/rdma_cm"), container)
}

func (d *doctor) opens(path, container string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		d.find(OK, "", "%s can be opened", path)
	case os.IsNotExist(err):
		d.find(Fail, "modprobe rdma_ucm"+container, "%s is not there", path)
	case os.IsPermission(err):
		d.find(Fail, "run as a member of its group, or set its mode to 0666 by a udev rule (rdma-core brings one); in a "+
			"container the device must be allowed", "%s may not be opened by this user: %v", path, err)
	default:
		d.find(Fail, "", "%v", err)
	}
}

// namespaces checks that the devices and their network devices are in this network namespace.
func (d *doctor) namespaces() {
	entries, _ := os.ReadDir(d.path("sys/class/infiniband"))
	if !d.exists("sys/class/infiniband") {
		return
	}
	state, err := d.kernel.rdma()
	d.rdma = state
	files, _ := filepath.Glob(d.path("sys/class/infiniband_verbs/uverbs*"))
	switch {
	case len(entries) == 0 && err == nil && state.exclusive && len(files) > 0:
		d.find(Fail, "rdma dev set DEVICE netns NAME gives this namespace a device; or run in the host's (Kubernetes: "+
			"hostNetwork: true)", "the host's %d RDMA devices belong to other network namespaces, this one has none "+
			"(rdma system: "+
			"netns exclusive)", len(files))
	case len(entries) == 0:
		d.find(Fail, softDevice, "the kernel has RDMA, but no device")
	case err != nil:
		d.find(Note, "", "the kernel was not asked for the devices' network namespaces: %v", err)
	}
	for _, e := range entries {
		device := e.Name()
		ports, _ := filepath.Glob(d.path("sys/class/infiniband/" + device + "/ports/*"))
		for _, dir := range ports {
			port := filepath.Base(dir)
			netdev := d.line("sys/class/infiniband/" + device + "/ports/" + port + "/gid_attrs/ndevs/0")
			here, known := state.devices[device]
			num := 0
			fmt.Sscan(port, &num)
			if err != nil || !known || netdev == "" || here.netdevs[num] != "" {
				continue
			}
			d.find(Fail, fmt.Sprintf("run in that namespace (nsenter --net=FILE, ip netns exec NAME; Kubernetes: "+
				"hostNetwork: true), "+
				"or move the network device here: ip link set %s netns NAME", netdev),
				"%s port %s: its network device %s is in another network namespace, so it has no address and no GID here", device,
				port, netdev)
			d.unusable = append(d.unusable, device)
		}
	}
	slices.Sort(d.unusable)
}
