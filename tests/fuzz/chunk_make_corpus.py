#!/usr/bin/env python3
"""Makes the seeds of chunk_decode, chunk_round_trip and column_header from the golden columns.

usage: chunk_make_corpus.py      (writes below corpus/ beside this file)
"""
import pathlib
import struct
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "oracle"))
import decode_column as oracle  # noqa: E402


# The order of CodecNames(), by which chunk_decode_fuzz chooses.
CODEC_PLACE = {"generic": 0, "f16": 1, "sparkv-paper": 2, "cachegen": 3, "kivi": 4}


def write(folder: str, name: str, data: bytes):
    (here / "corpus" / folder).mkdir(parents=True, exist_ok=True)
    (here / "corpus" / folder / name).write_bytes(data)


for path in sorted((here.parent / "golden/codec_v1").glob("*.col")):
    blob = path.read_bytes()
    write("column_header", path.name, blob)
    h = oracle.parse_header(blob)
    write("column_header", path.stem + "_header", blob[:h["header_bytes"]])
    if h["tokens"] > 255:
        continue
    for count in range(1, h["planes"] + 1):
        planes = [blob[o:o + n] for o, n, _ in h["items"][0][:count]]
        head = struct.pack("<BBHBB", CODEC_PLACE[oracle.CODECS[h["codec"]][0]], h["kv_heads"] - 1, h["tokens"], h["head_dim"] - 1, count)
        body = b"".join(struct.pack("<H", len(p)) + p for p in planes[:-1]) + planes[-1]
        write("chunk_decode", f"{path.stem}_{count}", head + body)
    if CODEC_PLACE[oracle.CODECS[h["codec"]][0]] > 1:
        continue  # every codec encodes every block: the values of two are enough
    _, values = oracle.decode_column(blob, max(oracle.CODECS[h["codec"]][2]))
    write("chunk_round_trip", path.stem, struct.pack("<BBB", 1, 69, 15) + values[:2000])
    if path.stem == "generic":
        write("chunk_round_trip", "generic_top_layer", struct.pack("<BBB", 7, 69, 15) + values[:2000])
for name, halves in (("extremes", [0x7BFF, 0xFBFF, 0, 0x8000, 1, 0x8001]), ("infinite", [0x3C00, 0x7C00]), ("one", [0x3C00])):
    write("chunk_round_trip", name, struct.pack(f"<BBB{len(halves)}H", 0, 40, 8, *halves))
