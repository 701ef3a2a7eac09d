# docker build -t godat . && docker run --rm godat
#   runs the whole test suite against soft-RoCE, in a virtual machine inside the unprivileged container. amd64 only.
# docker run --rm --device /dev/infiniband --cap-add IPC_LOCK --network host godat
#   uses the host's own RDMA device instead (ci/rxe-setup.sh makes a soft one).
# docker build --target runtime --build-arg VERSION="$(git describe --always --dirty)" -t datperf .
#   datperf alone, for amd64 or arm64, as the user 65532. Its registered memory needs --ulimit memlock=-1.

# What a build needs, and no more: the runtime image is built from it, without qemu and a kernel.
FROM golang:1.26-bookworm AS compile
RUN apt-get update && \
    apt-get install -y --no-install-recommends libibverbs-dev librdmacm-dev && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download

FROM compile AS program
ARG VERSION=devel
COPY . .
RUN go build -buildmode=pie -trimpath -ldflags "-s -w -X main.stamped=$VERSION" -o bin/ ./cmd/datperf

FROM debian:bookworm-slim AS runtime
ARG VERSION=devel
LABEL org.opencontainers.image.title="datperf" org.opencontainers.image.version="$VERSION"
RUN apt-get update && \
    apt-get install -y --no-install-recommends libibverbs1 librdmacm1 ibverbs-providers && \
    rm -rf /var/lib/apt/lists/*
COPY --from=program /src/bin/datperf /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["datperf"]

# Last, so that a build without --target is this one.
FROM compile AS test
COPY ci ci
RUN ci/deps.sh && rm -rf /var/lib/apt/lists/*
COPY lab/go.mod lab/go.sum lab/
RUN go -C lab mod download
COPY . .
RUN make build
CMD ["make", "test"]
