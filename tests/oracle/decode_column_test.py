#!/usr/bin/env python3
"""Compares the oracle with the C++ decoder on every golden column and level, bit for bit.

usage: decode_column_test.py GOLDEN_FOLDER FORMAT_MD CODEC_GOLDEN_TOOL...     the tool may be several words (an emulator)
"""
import pathlib
import re
import subprocess
import sys

import decode_column as oracle


def main() -> int:
    folder, tool = pathlib.Path(sys.argv[1]), sys.argv[3:]
    assert oracle.crc32c(b"123456789") == 0xE3069283
    text = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    dump = re.findall(r"^    [0-9a-f]{3}: ((?:[0-9a-f]{2} ?)+)$", text, re.M)
    if bytes.fromhex(" ".join(dump)) != (folder / "example.col").read_bytes():
        print("FORMAT.md's worked example is not example.col")
        return 1
    compared = 0
    for path in sorted(folder.glob("*.col")):
        blob = path.read_bytes()
        for level in oracle.CODECS[oracle.parse_header(blob)["codec"]][2]:
            _, want = oracle.decode_column(blob, level)
            got = subprocess.run([*tool, "dump", str(path), str(level)], check=True,
                                 stdout=subprocess.PIPE).stdout
            if got != want:
                first = next((i for i in range(min(len(got), len(want))) if got[i] != want[i]), -1)
                print(f"{path.name} level {level}: differs at byte {first}; "
                      f"{len(got)} bytes against {len(want)}")
                return 1
            compared += 1
        # The oracle must be able to fail: any flipped byte breaks a check.
        for at in range(0, len(blob), max(1, len(blob) // 50)):
            broken = bytearray(blob)
            broken[at] ^= 0x40
            try:
                oracle.decode_column(bytes(broken), max(oracle.CODECS[oracle.parse_header(blob)["codec"]][2]))
            except oracle.FormatError:
                continue
            print(f"{path.name}: byte {at} flipped, and nothing noticed")
            return 1
    print(f"{compared} decodings equal")
    return 0 if compared >= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
