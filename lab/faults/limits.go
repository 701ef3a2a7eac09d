package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/godat/godat/udat"
)

// maxObjects is the number of objects after which creation ends if the device has refused none.
const maxObjects = 1500

// exhaust creates objects of a kind until the library refuses, checks the refusal, and frees the
// objects.
func exhaust(kind string, create func() (free func() error, err error)) error {
	var frees []func() error
	var refusal error
	for len(frees) < maxObjects {
		free, err := create()
		if err != nil {
			refusal = err
			break
		}
		frees = append(frees, free)
	}
	for _, free := range frees {
		if err := free(); err != nil {
			return fmt.Errorf("freeing one of %d %s: %w", len(frees), kind, err)
		}
	}
	if refusal != nil && !errors.Is(refusal, udat.ErrInsufficientResources) {
		return fmt.Errorf("after %d %s: %w", len(frees), kind, refusal)
	}
	if len(frees) == 0 {
		return fmt.Errorf("not one of %s: %w", kind, refusal)
	}
	return nil
}

// objects exhausts each kind of object, while the links carry traffic.
func objects(r *round) error {
	s, err := newSide(r.device, "limits")
	if err != nil {
		return err
	}
	buf := make([]byte, regionSize)
	err = errors.Join(
		exhaust("protection zones", func() (func() error, error) {
			pz, err := s.ia.CreatePZ()
			return pz.Free, err
		}),
		exhaust("dispatchers", func() (func() error, error) {
			evd, err := s.ia.CreateEVD(16, udat.EVDDTO, nil)
			return evd.Free, err
		}),
		exhaust("regions", func() (func() error, error) {
			lmr, err := s.ia.CreateLMR(s.pz, buf, udat.PrivAll)
			return lmr.Free, err
		}),
		exhaust("endpoints", func() (func() error, error) {
			ep, err := s.ia.CreateEP(s.pz, s.evd, s.evd, s.evd, nil)
			return ep.Free, err
		}),
		exhaust("service points", func() (func() error, error) {
			_, psp, err := s.ia.CreatePSPAny(s.evd, udat.PSPConsumer)
			return psp.Free, err
		}))
	if err := errors.Join(err, s.mem.lmr.Free(), s.evd.Free(), s.pz.Free(), s.ia.Close(udat.CloseGraceful)); err != nil {
		return err
	}
	return r.goOn()
}

// descriptors repeats this: it opens adapters, dispatchers and service points until the process may
// open no more descriptors, and closes them. Then it must be possible to open an adapter again.
func descriptors(r *round) error {
	for spare := range 20 {
		undo, err := descriptorsLeft(spare)
		if err != nil {
			return err
		}
		var sides []*side
		var refusal error
		for refusal == nil {
			var s *side
			if s, refusal = newSide(r.device, "limits"); s != nil {
				sides = append(sides, s)
			}
			if refusal == nil { // on tcp only the service point needs a descriptor
				_, _, refusal = s.ia.CreatePSPAny(s.evd, udat.PSPConsumer)
			}
			if len(sides) > 100 {
				break
			}
		}
		err = undo()
		for _, s := range sides {
			err = errors.Join(err, s.close())
		}
		switch {
		case err != nil:
			return err
		case refusal == nil:
			return errors.New("100 adapters opened beyond the limit of descriptors")
		case !errors.Is(refusal, udat.ErrInsufficientResources) || !namesDescriptors(refusal):
			return fmt.Errorf("with %d descriptors left: %w", spare, refusal)
		}
		s, err := newSide(r.device, "after")
		if err != nil {
			return fmt.Errorf("after the limit: %w", err)
		}
		if err := s.close(); err != nil {
			return err
		}
	}
	return r.goOn()
}

// descriptorsLeft limits the descriptors of this process: the process can open only n more, until
// undo is called. The limit is a descriptor number, and numbers below it may be free:
// descriptorsLeft counts these as part of n.
func descriptorsLeft(n int) (undo func() error, err error) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	taken := map[int]bool{}
	for _, fd := range open {
		number := 0
		fmt.Sscan(fd.Name(), &number)
		taken[number] = true
	}
	limit := 0
	for ; n > 0 || taken[limit]; limit++ {
		if !taken[limit] {
			n--
		}
	}
	return limitDescriptors(limit)
}

// locked repeats this: it registers memory until the process may lock no more, and frees it.
func locked(r *round) error {
	s, err := newSide(r.device, "limits")
	if err != nil {
		return err
	}
	defer s.close()
	for range 20 {
		var regions []*udat.LMR
		err := lockedMemory(1<<20, func() error {
			for range 100 {
				region, err := s.ia.AllocLMR(s.pz, 128<<10, udat.PrivAll)
				if err != nil {
					return err
				}
				regions = append(regions, region)
			}
			return nil
		})
		if !errors.Is(err, udat.ErrInsufficientResources) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
			return fmt.Errorf("after %d regions of 128 KiB with 1 MiB left: %w", len(regions), err)
		}
		if len(regions) < 4 || len(regions) > 8 {
			return fmt.Errorf("%d regions of 128 KiB fit into 1 MiB", len(regions))
		}
		for _, region := range regions {
			if err := region.Free(); err != nil {
				return err
			}
		}
	}
	return r.goOn()
}

// inGroup128 are commands that put their shell into a control group with 128 MiB of memory.
const inGroup128 = `set -e
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || grep -q cgroup2 /proc/mounts
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/faults
echo 134217728 >/sys/fs/cgroup/faults/memory.max
echo $$ >/sys/fs/cgroup/faults/cgroup.procs
`

// grouped starts a process that registers more memory than the process's control group may have.
func grouped(r *round) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := exec.Command("sh", "-c", inGroup128+`exec "$0" -grouped "$1"`, self, r.device).CombinedOutput()
	if err != nil {
		return fmt.Errorf("in a control group: %w: %s", err, out)
	}
	return r.goOn()
}

// runGrouped is the main function of the process that grouped starts. The process may use 128 MiB.
func runGrouped(device string) error {
	s, err := newSide(device, "limits")
	if err != nil {
		return err
	}
	for range 20 {
		_, err := s.ia.AllocLMR(s.pz, 192<<20, udat.PrivAll)
		if !errors.Is(err, udat.ErrInsufficientResources) || !strings.Contains(err.Error(), "may use 134217728 bytes") {
			return fmt.Errorf("192 MiB: %w", err)
		}
		region, err := s.ia.AllocLMR(s.pz, 32<<20, udat.PrivAll)
		if err != nil {
			return fmt.Errorf("32 MiB: %w", err)
		}
		if err := region.Free(); err != nil {
			return err
		}
	}
	return s.close()
}

func namesDescriptors(err error) bool {
	text := err.Error()
	return strings.Contains(text, "open files") || strings.Contains(text, "descriptor")
}

var limitsGroup = []scenario{
	{group: "limits", name: fmt.Sprintf("each kind of object until the device refuses, or %d", maxObjects), act: objects,
		promise: "InsufficientResources; all objects can be freed; other connections go on",
		ends:    disconnected, within: soon,
		rounds: map[string][2]int{"mem": {1, 100}, "tcp": {1, 20}, "rxe": {1, 10}},
		why:    map[string]string{"siw": "not shown"}},
	{group: "limits", name: "descriptors, 20 times", act: descriptors,
		promise: "InsufficientResources with the limit's name; then adapters open again; other connections go on",
		ends:    disconnected, within: soon,
		rounds: map[string][2]int{"tcp": {1, 20}, "rxe": {1, 5}, "siw": {1, 2}},
		why:    map[string]string{"mem": "needs none"}},
	{group: "limits", name: "locked memory, 20 times", act: locked,
		promise: "InsufficientResources with the limit's name; all that fits is registered again; other connections go on",
		ends:    disconnected, within: soon,
		rounds: map[string][2]int{"rxe": {1, 5}, "siw": {1, 2}},
		why:    map[string]string{"mem": "locks none", "tcp": "locks none"}},
	{group: "limits", name: "one region larger than a control group's memory, 20 times", act: grouped,
		promise: "InsufficientResources with the limit; a smaller one is registered; the process lives on",
		ends:    disconnected, within: soon,
		rounds: map[string][2]int{"rxe": {1, 5}, "siw": {1, 2}},
		why:    map[string]string{"mem": "not shown", "tcp": "not shown"}},
}
