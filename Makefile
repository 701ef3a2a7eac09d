# Everything starts here: `make demo` shows it, `make test` proves it.
SHELL := /bin/bash
export PATH := $(PATH):/usr/local/go/bin

# A checkout that git does not trust (another owner, no .git) cannot be stamped into the binaries.
ifneq ($(shell git rev-parse HEAD >/dev/null 2>&1 && echo yes),yes)
export GOFLAGS := $(GOFLAGS) -buildvcs=false
endif

.PHONY: help deps build demo demo-rxe sample test test-host test-vm test-uml conformance faults fuzz sanitize mutate bench bench-nic cross lint release-check vet size clean docker

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

deps: ## install what is missing (apt) and fetch the virtual machine's kernel
	@ci/deps.sh

build: ## bin/datperf; installs nothing
	go build -o bin/ ./cmd/datperf

.PHONY: loopdev
loopdev: ## bin/libloop.so, the loop device: a verbs device in memory, for tests (lab/loopdev/loop.sh COMMAND... runs with it)
	@lab/loopdev/loop.sh

.PHONY: interop
interop: provider ## the C library's test programs on the provider and beside Go programs, on rxe and on siw in the virtual machine: docs/interop.md (CASES='rping dtest': these rows again)
	@ci/deps.sh && ci/deps.sh siw
	go -C lab build -o ../bin/ ./interop ./interop/peer
	cc -o bin/host cmd/libgodat/testdata/host.c -ldat2 -lpthread -ldl
	@mkdir -p out
	@[ -n "$(CASES)" ] || rm -f out/interop.json
	for device in rxe siw; do \
	  ci/rxe-vm.sh --device $$device --timeout 3600 --out $(CURDIR)/out -- bin/interop --bin $(CURDIR)/bin --device $${device}0 \
	    --results $(CURDIR)/out/interop.json --page $(CURDIR)/out/interop.md $(CASES) || exit 1; \
	done
	@cp out/interop.md docs/

.PHONY: suites lint-suites
suites: lint-suites ## the tests of other projects and of Go's library over rdmanet, beside TCP: docs/suites.md (SUITES='-suite yamux -devices loop0': a part of them)
	@ci/deps.sh build
	go -C lab/suites test -count=1 ./programs/frameworks
	go -C lab/suites run . $(or $(SUITES),-page ../../docs/suites.md)

lint-suites: # not lint's: it downloads all that the suites need
	go -C lab/suites vet ./...
	go -C lab/suites mod tidy -diff
	@staticcheck="$$(go -C lab tool -n staticcheck)" && cd lab/suites && "$$staticcheck" ./...

.PHONY: provider
provider: ## bin/libgodat.so, a DAT 2.0 provider for C programs, and bin/dat.conf for the devices of this host
	@ci/deps.sh build provider
	go build -tags dat2 -buildmode=c-shared -ldflags=-X=runtime.godebugDefault=asyncpreemptoff=1 -o bin/libgodat.so ./cmd/libgodat
	go build -o bin/ ./cmd/libgodat
	@bin/libgodat bin/libgodat.so | tee bin/dat.conf

deb: ## out/datperf_VERSION_ARCH.deb: datperf, manual pages, completion, systemd unit
	@ci/deb.sh

.PHONY: rpm
rpm: ## out/datperf-VERSION-1.ARCH.rpm, with the same content
	@ci/rpm.sh

.PHONY: deploy-check
deploy-check: build ## what deploy/ has: the manifests against the types of Kubernetes, a mesh under Debian's Slurm (root)
	go -C lab/deploy vet ./...
	go -C lab/deploy mod tidy -diff
	go -C lab/deploy test -count=1 ./...
	ci/slurm-check.sh

static: ## bin/datperf-static: rdma-core's libraries and providers in it, only the C library outside
	@ci/static.sh

.PHONY: build-deps
build-deps: # the compiler and headers that build wants
	@ci/deps.sh build

demo: build-deps build ## datperf at once, in two processes: on this host's RDMA device if it has one, else over TCP
	@ci/demo.sh

demo-rxe: deps build ## datperf in two processes over real verbs: this host's device, or soft-RoCE in the virtual machine
	@ci/demo.sh --rxe

sample: deps build ## measure for docs/datperf-sample.html, and write it: on the loop device, on a machine that does nothing else
	lab/loopdev/loop.sh bin/datperf local --device loop0 -t send,write,read -m all -l all -s 64,4K,64K -D 2 -i 0.2 \
	  --title "datperf on the loop device: verbs in the memory of one process" --html docs/datperf-sample.html
	@sed -i "s/$$(uname -r)/$$(uname -r | cut -d- -f1)/g" docs/datperf-sample.html # without its builder's name

test: ## everything that a change must pass: formatting, vet, tests here and, at the same time, on a real device
	@ci/gate.sh

# Tests on the loop device. The library is loaded into them alone, not into the go command and the compiler.
on-loop = go test -exec '"$(CURDIR)/lab/loopdev/loop.sh"'

.PHONY: test-race test-loop test-tcp test-lab
test-host: test-race test-loop test-tcp test-lab ## tests on mem0 and the loop device with the race detector and the checker of locks, and on tcp; no RDMA device needed

# The race detector sees verbs under udat on the loop device, and what is above udat on mem0: that code is the same on
# each device. Vet is lint's, and datperf with the race detector is nightly's. V=-v makes the tests verbose: ci/gate.sh
# wants that.
test-race:
	env -u GODAT_TEST_DEVICE go test -vet=off $(V) -race -tags lockcheck -short $$(go list ./... | grep -v /cmd/datperf$$)
	env -u GODAT_TEST_DEVICE go test -vet=off $(V) -short ./cmd/datperf

test-loop:
	$(on-loop) -vet=off $(V) -race -short ./cverbs ./udat ./udat/internal/verbsfabric/... ./udat/internal/fabric/faultfabric
	$(on-loop) -vet=off $(V) -short ./cmd/datperf ./rdmanet

test-tcp:
	GODAT_TEST_DEVICE=tcp:127.0.0.1 go test -vet=off $(V) -short ./udat ./rdmanet ./examples/...

test-lab:
	env -u GODAT_TEST_DEVICE go -C lab test -vet=off $(V) -short -count=1 ./...

# Of udat and rdmanet: what the loop device has not (shared receive queues, windows, atomics, asynchronous events, the
# connection manager), and how connections begin and end. nightly-vm runs all of them.
on-rxe = SRQ|RMR|Window|Atomic|Async|Connect|Accept|Reject|Listen|PSP|RSP|Disconnect|Flush|Close|Removal|Graceful|Transfer|Dial|Stream|Region|Zone|Example

# TestStreamFaults breaks the stream above the device: test-loop has it.
test-vm: ## tests of what uses a device on a real one: this host's, or rxe in the virtual machine
	@ci/vm-tests.sh $(V) --no-race --short --skip '^TestStreamFaults$$' ./cverbs ./udat/internal/verbsfabric/... --run '$(on-rxe)' ./udat ./rdmanet ./examples/...

.PHONY: nightly nightly-host nightly-vm
nightly: test nightly-host nightly-vm conformance faults mutate adversary suites test-uml ## all that there is, for hours
	@$(MAKE) --no-print-directory cross CROSS='linux/amd64 freebsd/amd64 netbsd/amd64 openbsd/amd64'

nightly-host: # what test-host leaves out
	env -u GODAT_TEST_DEVICE go test -race -tags lockcheck ./...
	GODAT_TEST_DEVICE=tcp:127.0.0.1 go test ./udat ./rdmanet
	GODAT_TEST_DEVICE=tcp:127.0.0.1 go test -race -short ./udat ./rdmanet
	go test -short -tags portablesocket ./udat/internal/tcpfabric
	GODAT_TEST_TLS=1 GODAT_TEST_DEVICE=tcp:127.0.0.1 go test -short ./udat ./rdmanet
	$(on-loop) -short -tags godat_direct ./cverbs
	$(on-loop) -race ./cmd/datperf ./rdmanet ./udat
	$(subst go test,go -C lab test,$(on-loop)) -race -short ./bench/loop
	env -u GODAT_TEST_DEVICE go -C lab test -race -count=1 ./...

# udat with the race detector on verbs is test-host's, on the loop device: here it is slow.
nightly-vm: # what test-vm leaves out
	@ci/vm-tests.sh --no-race --short ./udat ./rdmanet ./internal/perf/engine ./cmd/datperf ./examples/...
	@ci/vm-tests.sh --short ./cverbs ./udat/internal/verbsfabric/...
	@GOFLAGS=-tags=godat_direct ci/vm-tests.sh --no-race --short ./cverbs ./udat/internal/verbsfabric

test-uml: ## tests of cverbs on a newer kernel's soft-RoCE, with on-demand paging and atomic writes, in the User Mode Linux
	@ci/deps.sh uml
	ci/vm-tests.sh --uml --no-race --short --skip '^TestChannelSolicited$$' ./cverbs

conformance: ## the table of DAT rules and their proofs, on every fabric: docs/conformance/table.md
	@ci/deps.sh
	@ci/conformance.sh

faults: ## provoke faults on every fabric, under checked traffic: docs/reliability.md (LONG=1: all rounds, for hours)
	@ci/deps.sh
	@ci/faults.sh $(if $(LONG),--long)

.PHONY: adversary
adversary: ## attack tcp for an hour with a peer of its own code, in each build of the target (ADVERSARY='-time 8h')
	go -C lab build -o ../bin/ ./adversary
	go -C lab build -o ../bin/adversary-target ./adversary/target
	go -C lab build -o ../bin/adversary-target-portable -tags portablesocket ./adversary/target
	go -C lab build -o ../bin/adversary-target-race -race ./adversary/target
	bin/adversary -target bin/adversary-target,bin/adversary-target-portable,bin/adversary-target-race $(or $(ADVERSARY),-time 1h)

# Each target that parses what a peer or a file says, with the seeds in its test.
fuzz: ## a minute of fuzzing for each target that parses foreign bytes (FUZZTIME=10m for longer)
	@set -e; git grep -h --full-name -l '^func Fuzz' -- '*_test.go' | while read -r file; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
	    echo "$$target in $$file"; go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),1m); \
	  done; \
	done

# Leaks are the business of the tests: LeakSanitizer does not see memory that only Go points to.
sanitize: ## cverbs, udat and the C provider on mem0 and the loop device with AddressSanitizer, and with cgocheck2
	ASAN_OPTIONS=detect_leaks=0 $(on-loop) -asan -short ./cverbs ./udat/internal/verbsfabric ./udat
	GODAT_PROVIDER_ASAN=1 go test -count=1 ./cmd/libgodat
	GOEXPERIMENT=cgocheck2 $(on-loop) -short ./cverbs ./udat/internal/verbsfabric ./udat

mutate: ## break what ships in a fixed sample of ways; the tests must notice each (ALL=1: in all ways, for hours)
	@go -C lab build -o ../bin/ ./mutate
	bin/mutate $(if $(ALL),-all) $(MUTATE)

bench: ## measure, alone on the machine, and write docs/performance.md (BENCH='--time 5m loop tcp' for parts)
	@ci/bench.sh $(BENCH)

bench-nic: build ## datperf beside perftest on a NIC: DEVICE=mlx5_0 ADDRESS=10.0.0.2 [SERVER='ssh HOST'] [SERVER_DEVICE=mlx5_1]
	go -C lab build -o ../bin/ ./bench
	bin/bench --bin bin --machine host --device '$(DEVICE)' --address '$(ADDRESS)' --server '$(SERVER)' \
	  --server-device '$(SERVER_DEVICE)' --json out/performance-nic.json --pages out/performance-nic nic
	@echo "Please attach out/performance-nic.json to an issue of this repository: it is what we know of real NICs."

CROSS ?= linux/arm64 darwin/arm64 windows/amd64
cross: ## vets, and so type-checks, what must compile without cgo and elsewhere
	@set -e; for target in $(CROSS); do \
	  echo "CGO_ENABLED=0 $$target"; \
	  export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
	  for module in . lab; do go -C $$module vet ./...; done; \
	done

lint: ## gofmt, go vet, staticcheck, go mod tidy, line lengths, shellcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	@[ ! -e /usr/include/dat2/udat.h ] || go vet -tags dat2 ./cmd/libgodat
	go -C lab vet ./...
	go mod tidy -diff
	go -C lab mod tidy -diff
	@ci/lines.sh
	@staticcheck="$$(go -C lab tool -n staticcheck)" && for module in . lab; do \
	  echo "staticcheck $$module" && (cd $$module && "$$staticcheck" ./...) || exit 1; \
	done
	@if command -v shellcheck >/dev/null; then shellcheck -x ci/*.sh ci/vm/*.sh deploy/slurm/*.sh lab/loopdev/*.sh lab/mpi/*.sh && shellcheck -s dash ci/vm/init; \
	  else echo "no shellcheck here (ci/deps.sh lint installs it): skipped"; fi

release-check: ## what a tag needs besides make test: VERSION=v0.N.P, a clean tree, its changelog, pages, generated files, examples
	@[ -z "$$(git status --porcelain)" ] || { echo "release-check: there are changes that are not committed"; exit 1; }
	@[[ "$(VERSION)" =~ ^v0\.[0-9]+\.[0-9]+$$ ]] || { echo "release-check: VERSION is '$(VERSION)', must be v0.N.P"; exit 1; }
	@grep -qw "^## $(VERSION)" CHANGELOG.md || { echo "release-check: CHANGELOG.md has no section '## $(VERSION)'"; exit 1; }
	@! git rev-parse -q --verify "refs/tags/$(VERSION)" >/dev/null || { echo "release-check: the tag $(VERSION) exists"; exit 1; }
	@$(MAKE) --no-print-directory lint lint-suites cross CROSS='linux/amd64 linux/arm64 darwin/arm64 windows/amd64 freebsd/amd64 netbsd/amd64 openbsd/amd64'
	go -C lab test -count=1 ./docs ./layout
	go generate ./cverbs && git diff --exit-code -- cverbs
	go test -count=1 ./examples/...
	@ci/outside.sh
	@echo "release-check: $(VERSION) is ready, if make test has passed on this commit"

size: ## docs/size.md: the lines that ship
	go -C lab test -count=1 -run TestSize ./layout -update

vet: lint

clean: ## remove what was built here; the cache of ci/deps.sh stays
	rm -rf bin out

docker: ## build the image and run the whole test suite in it, without privileges
	docker build -t godat .
	docker run --rm godat
