# SparKV server on a CPU machine.
#   docker build -f deploy/docker/server.Dockerfile -t sparkv-server .
FROM debian:12-slim AS build
COPY . /src
WORKDIR /src
RUN scripts/deps.sh --no-model --no-cuda \
 && cmake --preset cpu-release -DSPARKV_TESTS=OFF \
 && cmake --build build/cpu-release --target sparkv-server

FROM debian:12-slim
RUN apt-get update -qq \
 && apt-get install -y -q --no-install-recommends libgrpc++1.51 libprotobuf32 libabsl20220623 libspdlog1.10 \
      libsqlite3-0 libssl3 ca-certificates \
 && rm -rf /var/lib/apt/lists/*
# LibTorch's two libraries, its OpenMP and the CUDA runtime libraries that libtorch_cpu.so names.
COPY --from=build /src/.deps/libtorch/torch/lib/libtorch_cpu.so /src/.deps/libtorch/torch/lib/libc10.so \
     /src/.deps/libtorch/torch/lib/libgomp.so.1 /src/.deps/libtorch/nvidia/cu13/lib/libcudart.so.13 \
     /src/.deps/libtorch/nvidia/cu13/lib/libcupti.so.13 /opt/libtorch/lib/
COPY --from=build /src/build/cpu-release/server/sparkv-server /usr/local/bin/
ENV LD_LIBRARY_PATH=/opt/libtorch/lib
RUN useradd --system --create-home --home-dir /var/lib/sparkv-server sparkv
USER sparkv
VOLUME ["/var/lib/sparkv-server", "/models"]
EXPOSE 7070
ENTRYPOINT ["/usr/local/bin/sparkv-server"]
CMD ["--config", "/etc/sparkv/server.toml"]
