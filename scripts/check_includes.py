#!/usr/bin/env python3
"""Checks that includes follow the layers: a folder may include only what is listed for it.

usage: check_includes.py ROOT        prints each violation and exits 1 if there is one
"""
import pathlib
import re
import sys

# folder -> prefixes of our own headers that it may include (its own folder is always allowed)
ALLOWED = {
    "proto": [],
    "kernels": [],
    "common/base": ["kernels"],
    "common/kv": ["kernels", "common/base"],
    "common/gguf": ["kernels", "common/base", "common/kv"],
    "common/codec": ["kernels", "common/base", "common/kv"],
    "common/llm": ["kernels", "common/base", "common/kv", "common/gguf"],
    "common/calibrate": ["kernels", "common/base", "common/kv", "common/gguf", "common/codec", "common/llm"],
    "common/config": ["kernels", "common/base"],
    "common/rpc": ["kernels", "common", "sparkv/v1"],
    "server": ["kernels", "common", "sparkv/v1", "sparkv_build_info.h"],
    # The loader's core knows ports only; gRPC lives in edge/net.
    "edge/load": ["kernels", "common/base", "common/kv", "common/codec", "common/llm"],
    "edge/net": ["kernels", "common", "edge/load", "sparkv/v1"],
    "edge/cli": ["kernels", "common", "edge", "sparkv/v1", "sparkv_build_info.h"],
    "edge": ["kernels", "common", "edge/load", "edge/net", "sparkv/v1", "sparkv_build_info.h"],
}
TORCH = re.compile(r"^(torch|ATen|c10)/")
GRPC = re.compile(r"^(grpc|grpcpp|google/protobuf|spdlog|fmt|sparkv/v1)/|\.pb\.h$")
OURS = re.compile(r"^(kernels|common|server|edge|tests|proto|sparkv/v1)/|^sparkv_build_info\.h$")
# Where gRPC, protobuf and spdlog may be seen at all.
GRPC_FOLDERS = ("common/rpc", "server", "edge", "tests")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def folder_of(path: str):
    best = None
    for folder in ALLOWED:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    bad = []
    files = [p for top in ("kernels", "common", "server", "edge", "tests")
             for p in sorted((root / top).rglob("*")) if p.suffix in (".h", ".cc", ".cu")]
    graph = {}
    for path in files:
        rel = path.relative_to(root).as_posix()
        includes = [m.group(1) for line in path.read_text(encoding="utf-8").splitlines()
                    if (m := INCLUDE.match(line))]
        graph[rel] = includes
        folder = folder_of(rel)
        for inc in includes:
            if TORCH.match(inc) and not re.match(r"^(common/llm|kernels/torch)/[a-z0-9_]*\.(cc|cu)$", rel):
                bad.append(f"{rel}: includes {inc}; Torch headers belong in .cc files of common/llm and kernels/torch")
            if GRPC.search(inc) and not rel.startswith(GRPC_FOLDERS):
                bad.append(f"{rel}: includes {inc}; gRPC, protobuf and spdlog stay in {', '.join(GRPC_FOLDERS)}")
            if inc.startswith("catch2/") and rel not in ("tests/catch.h", "tests/test_main.cc"):
                bad.append(f"{rel}: includes {inc}; use tests/catch.h")
            if folder is None or not OURS.match(inc):
                continue
            allowed = ALLOWED[folder] + [folder]
            if not any(inc == a or inc.startswith(a + "/") for a in allowed):
                bad.append(f"{rel}: {folder} may not include {inc}; allowed: {', '.join(allowed)}")
            if folder == "edge" and inc.startswith("edge/cli/"):
                bad.append(f"{rel}: the daemon may not include the tool ({inc})")
    # The decoder must stand without the encoder, directly or through any header.
    for start in (f for f in graph if re.match(r"^common/codec/(?!enc_)", f)):
        seen, todo = set(), [start]
        while todo:
            for inc in graph.get(todo.pop(), []):
                if inc in graph and inc not in seen:
                    seen.add(inc)
                    todo.append(inc)
        for inc in sorted(seen):
            if re.match(r"^common/codec/enc_", inc):
                bad.append(f"{start}: reaches {inc}; the decoder includes nothing of the encoder")
    # A Torch file must not reach gRPC, protobuf or spdlog through a header of ours.
    for start in (f for f, incs in graph.items() if any(TORCH.match(i) for i in incs)):
        seen, todo = set(), [start]
        while todo:
            for inc in graph.get(todo.pop(), []):
                if GRPC.search(inc):
                    bad.append(f"{start}: a Torch file reaches {inc}")
                if inc in graph and inc not in seen:
                    seen.add(inc)
                    todo.append(inc)
    for line in bad:
        print(line)
    print(f"{len(files)} files, {len(bad)} violations")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
