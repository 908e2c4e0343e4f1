# An image with HRR in /opt/hrr, on top of an image that has a HIP runtime.
#
#   docker build --build-arg BASE=IMAGE_WITH_ROCM -t hrr .
#   docker run --rm --device=/dev/kfd --device=/dev/dri -v "$PWD:/work" hrr hrr-capture --content -o app.hrr -- ./app
#
# Built on Debian 12, so the programs run where the C library is 2.36 or newer (Debian 12, Ubuntu 24.04) and libhwloc.so.15 can
# be installed. /opt/hrr needs nothing else of the image: it can also be copied out, or mounted into another container.
ARG BASE=debian:bookworm-slim

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# scripts/install asks apt for what building needs.
RUN scripts/install --prefix /opt/hrr

FROM ${BASE}
# Any version of what the base image offers will do; the name of the package holds the version of the interface.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends libhwloc15 \
  && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/hrr /opt/hrr
ENV PATH=/opt/hrr/bin:$PATH
WORKDIR /work
CMD ["hrr-playback", "--help"]
