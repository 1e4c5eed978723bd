#!/usr/bin/env python3
"""Compares the oracle of the codecs with a model profile with the C++ decoder on every golden column and level: symbols
bit for bit, values to 1e-5 of the largest so far.

usage: decode_profile_test.py GOLDEN_FOLDER FORMAT_MD CODEC_GOLDEN_TOOL...     the tool may be several words (an emulator)
"""
import pathlib
import re
import struct
import subprocess
import sys

import decode_column
import decode_profile as oracle


def largest_given(path: pathlib.Path) -> float:
    """Of K and V of layer 0."""
    data = path.read_bytes()
    _, tokens, width = struct.unpack_from("<3I", data)
    return max(abs(v) for v, in struct.iter_unpack("<e", data[12 + 4 * tokens + 4 * tokens * width:]))


def compare(path: pathlib.Path, level: int, profile: pathlib.Path, given: pathlib.Path, tool: list) -> float:
    """The largest difference, relative to the largest value of the layer and of those below it."""
    got = subprocess.run([*tool, "dump", str(path), str(level), str(profile), str(given)], check=True,
                         stdout=subprocess.PIPE).stdout
    want = oracle.decode(path.read_bytes(), level, oracle.parse_profile(profile.read_bytes()), given.read_bytes())
    at, worst, scale = 0, 0.0, largest_given(given)
    for layer, (q, rows) in enumerate(want, 1):
        n = sum(map(len, q))
        flat = [v for run in q for v in run]
        if struct.unpack_from(f"<{n}h", got, at) != tuple(flat):
            raise AssertionError(f"{path.name} level {level} layer {layer}: other symbols")
        at += 2 * n
        values = [v for row in rows for v in row]
        scale = max(scale, max(map(abs, values)))
        for a, b in zip(values, struct.unpack_from(f"<{n}f", got, at)):
            if not abs(a - b) <= 1e-5 * scale:
                raise AssertionError(f"{path.name} level {level} layer {layer}: {b} instead of {a}")
            worst = max(worst, abs(a - b) / scale)
        at += 4 * n
    assert at == len(got)
    return worst


def check_example(folder: pathlib.Path, text: str):
    blob = (folder / "example.col").read_bytes()
    items = decode_column.parse_header(blob)["items"][1]
    dumps = [bytes.fromhex("".join(re.findall(r"^    [0-9a-f]{4}: (.*)$", block, re.M)))
             for block in re.findall(r"(?:^    [0-9a-f]{4}: (?:[0-9a-f]{2} ?)+\n)+", text, re.M)]
    planes = [blob[offset:offset + size] for offset, size, _ in items]
    if dumps != planes[:2]:
        print("\n".join(plane.hex(" ") for plane in planes[:2]))
        raise AssertionError("FORMAT.md's worked example is not example.col")


def main() -> int:
    folder, tool = pathlib.Path(sys.argv[1]) / "profile", sys.argv[3:]
    compared, worst = 0, 0.0
    for path in sorted(folder.glob("*.col")):
        profile = folder / (path.stem.rsplit("_", 1)[0] + ".prf")
        given = path.with_suffix(".in")
        for level in oracle.LEVELS:
            worst = max(worst, compare(path, level, profile, given, tool))
            compared += 1
    check_example(folder, pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    # The oracle must be able to fail: any flipped byte breaks a check.
    column, profile, given = (folder / f"example.{suffix}" for suffix in ("col", "prf", "in"))
    for target in (column, profile):
        data = target.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 40)):
            broken = bytearray(data)
            broken[at] ^= 0x40
            pair = [bytes(broken) if path == target else path.read_bytes() for path in (column, profile)]
            try:
                oracle.decode(pair[0], 5, oracle.parse_profile(pair[1]), given.read_bytes())
            except oracle.FormatError:
                continue
            print(f"{target.name}: byte {at} flipped, and nothing noticed")
            return 1
    print(f"{compared} decodings equal, values to {worst:.1e}")
    return 0 if compared >= 35 else 1


if __name__ == "__main__":
    sys.exit(main())
