#!/usr/bin/env python3
"""Makes the seeds of residual_planes and profile from the golden columns, those of manifest from nothing.

usage: make_residual_corpus.py      (writes below corpus/ beside this file)
"""
import pathlib
import struct
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "oracle"))
import decode_column  # noqa: E402
import decode_profile  # noqa: E402,F401

PROFILE_PLACE = {"pred": 0, "pred_split": 1, "plain": 2}  # in residual_planes_fuzz


def write(folder: str, name: str, data: bytes):
    (here / "corpus" / folder).mkdir(parents=True, exist_ok=True)
    (here / "corpus" / folder / name).write_bytes(data)


golden = here.parent / "golden/codec_v1/profile"
for profile, place in PROFILE_PLACE.items():
    for column in sorted(golden.glob(f"{profile}_[0-9]*.col")):
        blob = column.read_bytes()
        h = decode_column.parse_header(blob)
        for layer, count in ((0, 5), (1, 1), (1, 5), (2, 3)):
            planes = [blob[o:o + n] for o, n, _ in h["items"][layer][:count]]
            body = b"".join(struct.pack("<H", len(p)) + p for p in planes[:-1]) + planes[-1]
            head = struct.pack("<4B", place, layer, h["tokens"], count)
            write("residual_planes", f"{column.stem}_{layer}_{count}", head + body)
for name in ("pred_split", "plain"):
    write("profile", name, (golden / f"{name}.prf").read_bytes())


def field(number: int, value) -> bytes:
    """A protobuf field: a whole number, or bytes."""
    def varint(n: int) -> bytes:
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def manifest(tokens: int, layers: int, heads: int, planes: int, active: bool) -> bytes:
    columns = []
    for t in range(-(-tokens // 1024)):
        items = b"".join(field(3, field(1, 100 + i) + field(2, 7)) for i in range(layers * planes))
        blocks = field(4, bytes([1] * layers * heads)) if active else b""
        key = bytes([t + 1] * 32)
        columns.append(field(1, key) + field(2, min(1024, tokens - 1024 * t)) + items + blocks)
    geometry = field(1, layers) + field(2, heads) + field(3, 16) + field(4, 1)
    return (field(1, key) + field(2, bytes(32)) + field(3, bytes(32)) + field(4, b"generic") + field(5, geometry)
            + field(6, planes) + field(7, bytes([5] * tokens)) + b"".join(field(8, c) for c in columns) + field(9, b"name"))


for name, args in (("one", (1, 1, 1, 1, False)), ("two_columns", (1030, 2, 2, 3, True)), ("layers", (30, 20, 1, 5, False))):
    write("manifest", name, manifest(*args))
