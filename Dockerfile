# docker build -t godat . && docker run --rm godat
#   runs the whole test suite against soft-RoCE, in a virtual machine inside the unprivileged container.
# docker run --rm --device /dev/infiniband --cap-add IPC_LOCK --network host godat
#   uses the host's own RDMA device instead (ci/rxe-setup.sh makes a soft one).
# docker build --target runtime -t datperf .
#   datperf alone.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY ci ci
RUN ci/deps.sh && rm -rf /var/lib/apt/lists/*
COPY go.mod go.sum ./
COPY tools/go.mod tools/go.sum tools/
RUN go mod download && go -C tools mod download
COPY . .
RUN make build

FROM debian:bookworm-slim AS runtime
RUN apt-get update && \
    apt-get install -y --no-install-recommends libibverbs1 librdmacm1 ibverbs-providers && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /src/bin/datperf /usr/local/bin/
ENTRYPOINT ["datperf"]

FROM build AS test
CMD ["make", "test"]
