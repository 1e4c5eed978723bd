# SparKV edge daemon on a Jetson Orin (JetPack 6). JetPack's LibTorch is used as it is.
#   docker build -f deploy/docker/edge.Dockerfile -t sparkv-edge .
# For a machine without a Jetson GPU: --build-arg BASE=debian:12-slim --build-arg LIBTORCH=
ARG BASE=nvcr.io/nvidia/l4t-pytorch:r36.2.0-pth2.4-py3
FROM ${BASE}
ARG LIBTORCH=/usr/local/lib/python3.10/dist-packages/torch
COPY . /src
WORKDIR /src
RUN SPARKV_LIBTORCH=${LIBTORCH} scripts/deps.sh --no-model --no-cuda \
 && cmake --preset cpu-release -DSPARKV_TESTS=OFF ${LIBTORCH:+-DSPARKV_LIBTORCH=${LIBTORCH}} \
 && cmake --build build/cpu-release --target sparkv-edge sparkv \
 && cmake --install build/cpu-release
VOLUME ["/var/lib/sparkv-edge", "/models"]
EXPOSE 7071
ENTRYPOINT ["/usr/local/bin/sparkv-edge"]
CMD ["--config", "/etc/sparkv/edge.toml"]
