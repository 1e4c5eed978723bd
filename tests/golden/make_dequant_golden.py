#!/usr/bin/env python3
"""Writes golden/dequant/dequant.bin: blocks of every supported tensor type and the values that the
`gguf` package's reference dequantizer gives for them.

usage: make_dequant_golden.py [OUT]      needs: pip install numpy gguf

Layout, little-endian: "DQG1", entry count u32; each entry: type id u32, bytes u32, values u32,
the bytes, the values as f32. Bytes are random from a fixed seed; the f16 scales are set from a list
of extremes first (largest finite, smallest subnormal, zeros of both signs), then random and finite.
"""
import pathlib
import struct
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

# type -> offsets of its f16 fields in a block
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
EXTREMES = [65504.0, -65504.0, 2.0**-24, -(2.0**-24), 0.0, -0.0, 6.1e-05, 1.0]


def finite_halves(rng, n):
    return (rng.standard_normal(n) * 0.02).astype(np.float16)


def blocks_of(rng, qtype):
    size, nbytes = gguf.GGML_QUANT_SIZES[qtype]
    if qtype == T.F32:
        values = rng.standard_normal(200).astype(np.float32)
        values[:4] = [3.4e38, -3.4e38, 1e-45, -0.0]
        return values.tobytes(), values
    if qtype == T.F16:
        values = rng.standard_normal(203).astype(np.float16)
        values[:6] = [65504, -65504, 2.0**-24, -0.0, np.inf, -np.inf]
        return values.tobytes(), values.astype(np.float32)
    if qtype == T.BF16:
        raw = rng.integers(0, 0x7F80, 203, dtype=np.uint16) | (rng.integers(0, 2, 203, dtype=np.uint16) << 15)
        raw[:3] = [0x7F80, 0xFF80, 0x0001]  # infinities and the smallest subnormal
        raw = raw.astype("<u2")
        return raw.tobytes(), (raw.astype(np.uint32) << 16).view(np.float32)
    count = 12 if size == 32 else 8
    raw = rng.integers(0, 256, (count, nbytes), dtype=np.uint8)
    for which, at in enumerate(SCALES[qtype]):
        halves = finite_halves(rng, count)
        for i in range(min(count, 8 if size == 32 else 6)):
            halves[i] = EXTREMES[(i + 3 * which) % len(EXTREMES)]
        raw[:, at:at + 2] = halves.view(np.uint8).reshape(count, 2)
    # Every packed field at its ends.
    fields = np.ones(nbytes, dtype=bool)
    for at in SCALES[qtype]:
        fields[at:at + 2] = False
    raw[count - 1, fields] = 0xFF
    raw[count - 2, fields] = 0x00
    values = gguf.quants.dequantize(raw.reshape(1, -1), qtype).astype(np.float32).reshape(-1)
    return raw.tobytes(), values


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "dequant" / "dequant.bin"
    types = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0,
             T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]
    data = b"DQG1" + struct.pack("<I", len(types))
    for qtype in types:
        raw, values = blocks_of(np.random.default_rng(int(qtype) + 100), qtype)
        assert not np.isnan(values).any(), qtype
        data += struct.pack("<III", int(qtype), len(raw), len(values)) + raw + values.astype("<f4").tobytes()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(data)
    print(f"{out}: {len(types)} types, {len(data)} bytes")


if __name__ == "__main__":
    main()
