# Everything starts here: `make demo` shows it, `make test` proves it.
SHELL := /bin/bash
export PATH := $(PATH):/usr/local/go/bin

# A checkout that git does not trust (another owner, no .git) cannot be stamped into the binaries.
ifneq ($(shell git rev-parse HEAD >/dev/null 2>&1 && echo yes),yes)
export GOFLAGS := $(GOFLAGS) -buildvcs=false
endif

.PHONY: help deps build demo demo-rxe sample test test-host test-vm conformance faults fuzz sanitize mutate bench bench-nic cross lint release-check vet clean docker

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

deps: ## install what is missing (apt) and fetch the virtual machine's kernel
	@ci/deps.sh

build: ## bin/datperf
	@[ "$$(uname)" != Linux ] || [ "$$CGO_ENABLED" = 0 ] || ci/deps.sh build
	go build -o bin/ ./cmd/datperf

.PHONY: interop
interop: provider ## the C library's test programs beside godat, and on the provider, on rxe in the virtual machine: docs/interop.md (CASES='rping dtest': these rows again)
	@ci/deps.sh
	go build -o bin/ ./internal/interop ./internal/interop/peer
	@mkdir -p out
	@[ -n "$(CASES)" ] || rm -f out/interop.json
	ci/rxe-vm.sh --timeout 3600 --out $(CURDIR)/out -- bin/interop --bin $(CURDIR)/bin --results $(CURDIR)/out/interop.json \
	  --page $(CURDIR)/out/interop.md $(CASES)
	@cp out/interop.md docs/

.PHONY: provider
provider: ## bin/libgodat.so, a DAT 2.0 provider for C programs, and bin/dat.conf for the devices of this host
	@ci/deps.sh build provider
	go build -tags dat2 -buildmode=c-shared -o bin/libgodat.so ./cmd/libgodat
	go build -o bin/ ./cmd/libgodat
	@bin/libgodat bin/libgodat.so | tee bin/dat.conf

deb: build ## out/datperf_VERSION_ARCH.deb: datperf, manual pages, completion, systemd unit
	@ci/deb.sh

static: ## bin/datperf-static: rdma-core's libraries and providers in it, only the C library outside
	@ci/static.sh

demo: build ## datperf at once: on this host's RDMA device if it has one, else on mem0, inside one process
	@ci/demo.sh

demo-rxe: deps build ## datperf in two processes over real verbs: this host's device, or soft-RoCE in the virtual machine
	@ci/demo.sh --rxe

sample: deps build ## measure for docs/datperf-sample.html, and write it: on this host's device, or soft-RoCE in the virtual machine
	@ci/demo.sh --rxe --sample

test: deps lint cross ## everything: formatting, vet, cross-builds, tests here and, at the same time, on rxe
	@$(MAKE) --no-print-directory -j 2 test-host test-vm

test-host: ## tests on mem0 and on the loop device with the race detector, no RDMA device needed
	env -u GODAT_TEST_DEVICE go test -race ./...
	env -u GODAT_TEST_DEVICE go test -short -tags lockcheck ./udat ./udat/internal/lockrank
	env -u GODAT_TEST_DEVICE go test -race -short -tags nulldev ./cverbs ./internal/bench/loop
	GODAT_TEST_DEVICE=loop0 go test -race -short -tags nulldev ./udat ./udat/internal/verbsfabric ./udat/internal/fabric/faultfabric ./cmd/datperf ./rdmanet
	env -u GODAT_TEST_DEVICE go test -short -tags nulldev,godat_direct ./cverbs
	go -C tools test -count=1 ./...

# udat with the race detector on verbs is test-host's, on the loop device: here it is slow.
test-vm: ## tests of what uses a device on a real one: this host's, or rxe in the virtual machine
	@ci/vm-tests.sh --no-race --short ./udat ./rdmanet ./internal/perf/engine ./cmd/datperf ./examples/...
	@ci/vm-tests.sh --short ./cverbs ./udat/internal/verbsfabric
	@GOFLAGS=-tags=godat_direct ci/vm-tests.sh --no-race --short ./cverbs ./udat/internal/verbsfabric

conformance: ## the table of DAT rules and their proofs, on every fabric: docs/conformance/table.md
	@ci/deps.sh
	@ci/conformance.sh

faults: ## provoke faults on every fabric, under checked traffic: docs/reliability.md (LONG=1: all rounds, for hours)
	@ci/deps.sh
	@ci/faults.sh $(if $(LONG),--long)

# Each target that parses what a peer or a file says, with the seeds in its test.
fuzz: ## a minute of fuzzing for each target that parses foreign bytes (FUZZTIME=10m for longer)
	@set -e; git grep -h --full-name -l '^func Fuzz' -- '*_test.go' | while read -r file; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
	    echo "$$target in $$file"; go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),1m); \
	  done; \
	done

# Leaks are the business of the tests: LeakSanitizer does not see memory that only Go points to.
sanitize: ## cverbs, udat and the C provider on mem0 and the loop device with AddressSanitizer, and with cgocheck2
	ASAN_OPTIONS=detect_leaks=0 go test -asan -short -tags nulldev ./cverbs
	GODAT_TEST_DEVICE=loop0 ASAN_OPTIONS=detect_leaks=0 go test -asan -short -tags nulldev ./udat/internal/verbsfabric ./udat
	GODAT_PROVIDER_ASAN=1 go test -count=1 ./cmd/libgodat
	GOEXPERIMENT=cgocheck2 go test -short -tags nulldev ./cverbs
	GODAT_TEST_DEVICE=loop0 GOEXPERIMENT=cgocheck2 go test -short -tags nulldev ./udat/internal/verbsfabric ./udat

mutate: ## break udat and its fabrics in a fixed sample of ways; the tests must notice each (ALL=1: in all ways, for hours)
	@go -C tools build -o ../bin/ ./mutate
	bin/mutate $(if $(ALL),-all) $(MUTATE)

bench: ## measure, alone on the machine, and write docs/performance.md and out/performance.json (BENCH='loop scale' for parts)
	@ci/bench.sh $(BENCH)

bench-nic: build ## datperf beside perftest on a NIC: DEVICE=mlx5_0 ADDRESS=10.0.0.2 [SERVER='ssh HOST'] [SERVER_DEVICE=mlx5_1]
	go build -o bin/ ./internal/bench
	bin/bench --bin bin --machine host --device '$(DEVICE)' --address '$(ADDRESS)' --server '$(SERVER)' \
	  --server-device '$(SERVER_DEVICE)' --json out/performance-nic.json --page out/performance-nic.md nic
	@echo "Please attach out/performance-nic.json to an issue of this repository: it is what we know of real NICs."

cross: ## builds and vets what must compile without cgo and elsewhere
	@set -e; for target in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do \
	  echo "CGO_ENABLED=0 $$target"; \
	  export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
	  for module in . tools; do go -C $$module build ./...; go -C $$module vet ./...; done; \
	done

lint: ## gofmt, go vet, staticcheck, go mod tidy, line lengths, shellcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these files:"; echo "$$unformatted"; exit 1; }
	go vet ./... && go vet -tags nulldev ./...
	@[ ! -e /usr/include/dat2/udat.h ] || go vet -tags dat2 ./cmd/libgodat
	go -C tools vet ./...
	go mod tidy -diff
	go -C tools mod tidy -diff
	@ci/lines.sh
	@staticcheck="$$(go -C tools tool -n staticcheck)" && for module in . tools; do \
	  echo "staticcheck $$module" && (cd $$module && "$$staticcheck" ./...) || exit 1; \
	done
	@if command -v shellcheck >/dev/null; then shellcheck -x ci/*.sh ci/vm/*.sh && shellcheck -s dash ci/vm/init; \
	  else echo "no shellcheck here (ci/deps.sh lint installs it): skipped"; fi

release-check: ## what a tag needs besides make test: VERSION=v0.N.P, a clean tree, its changelog, pages, generated files, examples
	@[ -z "$$(git status --porcelain)" ] || { echo "release-check: there are changes that are not committed"; exit 1; }
	@[[ "$(VERSION)" =~ ^v0\.[0-9]+\.[0-9]+$$ ]] || { echo "release-check: VERSION is '$(VERSION)', must be v0.N.P"; exit 1; }
	@grep -qw "^## $(VERSION)" CHANGELOG.md || { echo "release-check: CHANGELOG.md has no section '## $(VERSION)'"; exit 1; }
	@! git rev-parse -q --verify "refs/tags/$(VERSION)" >/dev/null || { echo "release-check: the tag $(VERSION) exists"; exit 1; }
	@$(MAKE) --no-print-directory lint cross
	go -C tools test -count=1 ./docs ./layout
	go generate ./cverbs && git diff --exit-code -- cverbs
	go test -count=1 ./examples/...
	@ci/outside.sh
	@echo "release-check: $(VERSION) is ready, if make test has passed on this commit"

vet: lint

clean: ## remove what was built here; the cache of ci/deps.sh stays
	rm -rf bin out

docker: ## build the image and run the whole test suite in it, without privileges
	docker build -t godat .
	docker run --rm godat
