#!/usr/bin/env python3
"""Plants one violation of each kind in a small tree; check_includes.py must report every one."""
import pathlib
import subprocess
import sys
import tempfile

CASES = {
    "kernels/a.h": ('#include "common/base/status.h"', "kernels may not include"),
    "common/kv/b.cc": ('#include "common/llm/model.h"', "common/kv may not include"),
    "common/llm/c.h": ("#include <ATen/ATen.h>", "Torch headers belong"),
    "common/gguf/d.cc": ("#include <spdlog/spdlog.h>", "gRPC, protobuf and spdlog stay"),
    "server/e.cc": ('#include "edge/session.h"', "server may not include"),
    "edge/load/f.cc": ('#include "edge/net/receiver.h"', "edge/load may not include"),
    "edge/g.cc": ('#include "edge/cli/commands.h"', "the daemon may not include the tool"),
    "common/codec/dec_h.cc": ('#include "common/codec/enc_h.h"', "the decoder includes nothing"),
    "common/codec/enc_h.h": ("", ""),
    "common/codec/column_j.cc": ('#include "common/codec/k.h"', "the decoder includes nothing"),
    "common/codec/k.h": ('#include "common/codec/enc_h.h"', "the decoder includes nothing"),
    "tests/i_test.cc": ("#include <catch2/catch.hpp>", "use tests/catch.h"),
}


def main() -> int:
    script = pathlib.Path(sys.argv[1]) / "scripts/check_includes.py"
    with tempfile.TemporaryDirectory() as tmp:
        for name, (line, _) in CASES.items():
            path = pathlib.Path(tmp) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(line + "\n", encoding="utf-8")
        run = subprocess.run([sys.executable, str(script), tmp], capture_output=True, text=True)
    missing = [f"{name}: no line with '{want}'" for name, (_, want) in CASES.items()
               if want and not any(name in line and want in line for line in run.stdout.splitlines())]
    for line in missing:
        print(line)
    if run.returncode != 1:
        print(f"exit status {run.returncode}, expected 1")
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
