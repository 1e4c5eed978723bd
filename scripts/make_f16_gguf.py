#!/usr/bin/env python3
"""Requantizes a GGUF to F16: every quantized tensor becomes the f16 rounding of its dequantized values; unquantized tensors
(norms, biases) and all metadata stay byte for byte. The fair peer for speed on x86, where llama.cpp has no fast GEMM for Q4_1.

    scripts/make_f16_gguf.py IN.gguf OUT.gguf          needs: pip install numpy gguf
"""
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

ALIGNMENT = 32
UNQUANTIZED = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16}


def main(source, target):
    reader = GGUFReader(source)
    with open(source, "rb") as f:
        raw = f.read()
    if struct.unpack_from("<I", raw, 4)[0] != 3:
        sys.exit(f"{source}: only GGUF version 3 is handled")
    # The tensor infos begin where the metadata ends; keep everything before as it is.
    infos_start = min(int(t.field.offset) for t in reader.tensors)
    tensors, offset, infos = [], 0, b""
    for t in reader.tensors:
        kind = t.tensor_type
        if kind in UNQUANTIZED:
            data = np.ascontiguousarray(t.data).tobytes()
        else:
            data = dequantize(t.data, kind).astype(np.float16).tobytes()
            kind = GGMLQuantizationType.F16
        name = t.name.encode()
        dims = [int(d) for d in t.shape]
        infos += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims))
        infos += struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", int(kind), offset)
        tensors.append(data)
        offset += (len(data) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    with open(target, "wb") as f:
        f.write(raw[:infos_start] + infos)
        f.write(b"\0" * (-f.tell() % ALIGNMENT))
        for data in tensors:
            f.write(data)
            f.write(b"\0" * (-len(data) % ALIGNMENT))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
