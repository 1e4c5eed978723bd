#!/usr/bin/env python3
"""Decodes a column of `aatc` or `aatc-pred` with the standard library only, written from common/codec/FORMAT.md alone.

usage: decode_profile.py COLUMN PROFILE INPUT [LEVEL]     prints a digest of the values

INPUT is what a decoder must have besides: u32 first_token, u32 tokens, u32 d_model, i32 ids[tokens], f32 embeddings
[tokens][d_model], K and V of layer 0 as f16 [2][kv_heads][tokens][head_dim].
"""
import hashlib
import itertools
import math
import struct
import sys

from decode_column import Bits, FormatError, Reader, crc32c, f32, half_value, need, parse_header  # noqa: F401
import decode_column

CODECS = {6: ("aatc", 1), 7: ("aatc-pred", 1)}
LEVELS = {level: level for level in range(1, 6)}
decode_column.CODECS.update({number: (*codec, LEVELS) for number, codec in CODECS.items()})

ZERO = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 20, 23, 27, 32, 38, 45, 53, 62, 73, 86, 102, 121, 143, 169, 200,
        237, 281, 333, 395, 469, 556, 660, 783, 929, 1103, 1309]
OTHER = [(1365, 1366), (1497, 1361), (1620, 1350), (1789, 1325), (1940, 1293), (2158, 1233), (2341, 1170), (2626, 1050)]


# Section 5.
def matrix(r: Reader, kind: int, rows: int, cols: int) -> list:
    out = []
    for _ in range(rows):
        row = []
        for _ in range(cols // 32):
            scale = r.number("H")
            need(scale & 0x7C00 != 0x7C00, "a scale is not finite")
            d = half_value(scale)
            if kind == 8:
                row += [d * q for q in struct.unpack("32b", r.take(32))]
            else:
                nibbles = r.take(16)
                row += [d * ((n & 15) - 8) for n in nibbles] + [d * ((n >> 4) - 8) for n in nibbles]
        out.append(row)
    return out


def parse_profile(data: bytes) -> dict:
    r = Reader(data)
    need(r.take(8) == b"SPKVPRF\x1a", "bad magic")
    need(r.number("H") == 1, "profile version is not supported")
    need(r.number("H") == 0, "reserved field is not 0")
    need(r.number("I") == len(data) <= 1 << 28, "size")
    need(struct.unpack("<I", data[-4:])[0] == crc32c(data[:-4]), "profile CRC")
    p = {"codec": r.number("I"), "codec_version": r.number("H"), "planes": r.number("B"), "type": r.number("B")}
    for name in ("layers", "kv_heads", "head_dim", "d_model", "group", "rank_below", "rank_token"):
        p[name] = r.number("I")
    p["pairing"] = r.number("B")
    need(r.number("B") == 0, "reserved field is not 0")
    count = r.number("H")
    p["step"] = r.number("f")
    p["model"] = r.take(32).hex()
    p["digest"] = hashlib.sha256(data).hexdigest()
    rank, row = p["rank_below"] + p["rank_token"], p["kv_heads"] * p["head_dim"]
    need(p["codec"] == (7 if rank else 6) and p["codec_version"] == 1 and p["planes"] == 5, "codec is not supported")
    need(p["type"] in (2, 8), "type of the prediction's matrices")
    need(2 <= p["layers"] <= 1024 and 1 <= p["kv_heads"] <= 1024 and 1 <= p["head_dim"] <= 1024, "geometry")
    need(1 <= p["d_model"] <= 1 << 16 and (rank == 0 or p["d_model"] % 32 == 0), "d_model")
    need(32 <= p["group"] <= 1024 and p["group"] % 32 == 0 and row % p["group"] == 0, "group")
    need(all(p[name] <= 1024 and p[name] % 32 == 0 for name in ("rank_below", "rank_token")), "ranks")
    need(p["pairing"] in (1, 2) and count <= p["head_dim"] / 2, "rope")
    need(2.0 ** -60 <= p["step"] <= 2.0 ** 60, "step")
    p["frequency"] = [r.number("d") for _ in range(count)]
    need(all(abs(f) <= 1024 for f in p["frequency"]), "frequency")
    p["token"] = matrix(r, 8, p["rank_token"], p["d_model"])
    p["tables"] = [struct.unpack("<256H", r.take(512)) for _ in range(64)]
    need(all(sum(t) == 4096 and t[255] > 0 for t in p["tables"]), "frequencies of a table")
    p["layer"] = {}
    for layer in range(1, p["layers"]):
        offset = struct.unpack(f"<{2 * row}f", r.take(8 * row))
        need(all(map(math.isfinite, offset)), "offset")
        projected = p["rank_below"] not in (0, 2 * row)
        below = matrix(r, p["type"], p["rank_below"] if projected else 0, 2 * row)
        predict = matrix(r, p["type"], 2 * row, rank)
        inverse = [matrix(r, 8, p["group"], p["group"]) for _ in range(2 * row // p["group"])]
        table = r.take(2 * row)
        need(max(table) < 64, "table number")
        p["layer"][layer] = {"offset": offset, "below": below, "predict": predict, "inverse": inverse, "table": table}
    r.take(4)
    need(r.at == len(data), "bytes behind the profile")
    return p


# The codec's digest, as other codecs' with the profile's at the end: fields of a tag and bytes, each with its length.
def codec_digest(p: dict) -> str:
    def field(tag: str, value) -> bytes:
        data = struct.pack("<Q", value) if isinstance(value, int) else value
        return struct.pack("<I", len(tag)) + tag.encode() + struct.pack("<Q", len(data)) + data
    name, version = CODECS[p["codec"]]
    text = field("sparkv.codec", 1) + field("name", name.encode()) + field("id", p["codec"])
    text += field("version", version) + field("planes", 5)
    for level, planes in LEVELS.items():
        text += field("level", level) + field("level planes", planes)
    return hashlib.sha256(text + field("profile", bytes.fromhex(p["digest"]))).hexdigest()


# Section 3.1.
def zigzag(z: int) -> int:
    return z // 2 if z % 2 == 0 else -(z + 1) // 2


def number(bits: Bits, before: int, m: int) -> int:
    n = 0
    while bits.take(1) == 0:
        n += 1
        need(n <= 6, "a number's code is too long")
    z = (1 << n | bits.take(n)) - 1
    need(z < m, "a number is out of range")
    return (before + zigzag(z)) % m


class Rans:
    def __init__(self, r: Reader, length: int):
        words = r.number("I")
        self.x = [r.number("I") for _ in range(min(32, length))]
        need(all(state >= 65536 for state in self.x), "state below the bound")
        self.words, self.used = struct.unpack(f"<{words}H", r.take(2 * words)), 0

    def symbol(self, j: int, frequencies) -> int:
        """The place of the j-th symbol of a run among the frequencies."""
        lane = j % 32
        slot, start, s = self.x[lane] & 4095, 0, 0
        while slot >= start + frequencies[s]:
            start += frequencies[s]
            s += 1
        x = frequencies[s] * (self.x[lane] >> 12) + slot - start
        if x < 65536:
            need(self.used < len(self.words), "words run out")
            x = x << 16 | self.words[self.used]
            self.used += 1
        self.x[lane] = x
        return s

    def end(self):
        need(self.used == len(self.words) and all(state == 65536 for state in self.x),
             "the stream does not end where it should")


def thirds(r: Reader, v: list) -> list:
    length = len(v[0])
    bits, models, a, b = Bits(r), [], 0, 0
    for _ in v:
        a = number(bits, a, len(ZERO))
        b = number(bits, b, len(OTHER))
        models.append(((ZERO[a], ZERO[a], 4096 - 2 * ZERO[a]), (*OTHER[b], 4096 - sum(OTHER[b]))))
    bits.end()
    stream, out = Rans(r, length), []
    for run, (zero, other) in zip(v, models):
        row = []
        for j, value in enumerate(run):
            if value == 0:
                row.append((1, -1, 0)[stream.symbol(j, zero)])
            else:
                sign = 1 if value > 0 else -1
                row.append(3 * value + sign * (-1, 0, 1)[stream.symbol(j, other)])
        out.append(row)
    stream.end()
    return out


# Section 4.6.
def open_plane(plane: bytes, codec: int, place: int) -> Reader:
    r = Reader(plane)
    need(r.number("B") == codec and r.number("B") == place, "plane tag")
    return r


def first_plane(r: Reader, h: dict, tables: list, likeliest: bytes) -> tuple:
    runs, tokens = 2 * h["kv_heads"] * h["head_dim"], h["tokens"]
    exact = [r.number("H") for _ in range(r.number("H"))]
    need(all(a < b for a, b in zip(exact, exact[1:])) and all(t < tokens for t in exact), "exact tokens")
    rows = {t: [] for t in exact}
    for _ in range(2 * h["kv_heads"]):
        for t in exact:
            bits = [r.number("H") for _ in range(h["head_dim"])]
            need(all(b & 0x7C00 != 0x7C00 for b in bits), "an exact value is not finite")
            rows[t] += [half_value(b) for b in bits]
    escapes = [(r.number("I"), r.number("h")) for _ in range(r.number("I"))]
    bits = Bits(r)
    ids = [number(bits, likeliest[run], 64) for run in range(runs)]
    bits.end()
    stream = Rans(r, tokens)
    symbols = [[stream.symbol(j, tables[ids[run]]) for j in range(tokens)] for run in range(runs)]
    stream.end()
    places = [run * tokens + t for run, row in enumerate(symbols) for t, s in enumerate(row) if s == 255]
    need([index for index, _ in escapes] == places, "escapes")
    values = [[zigzag(s) for s in row] for row in symbols]
    for index, value in escapes:
        need(-404 <= value <= 404, "an escape is out of range")
        symbol = 2 * value if value >= 0 else -2 * value - 1
        need(symbol >= 255 or tables[ids[index // tokens]][symbol] == 0, "an escape that has a symbol")
        values[index // tokens][index % tokens] = value
    return values, rows


def times(m: list, x: list) -> list:
    return [sum(a * b for a, b in zip(row, x)) for row in m]


def plus(*vectors) -> list:
    return [sum(values) for values in zip(*vectors)]


def rope(p: dict, position: int, k: list, back: bool) -> list:
    out, dim, count = list(k), p["head_dim"], len(p["frequency"])
    for head in range(p["kv_heads"]):
        for i, frequency in enumerate(p["frequency"]):
            c, s = f32(math.cos(position * frequency)), f32(math.sin(position * frequency))
            s = -s if back else s
            one, two = (2 * i, 2 * i + 1) if p["pairing"] == 1 else (i, i + count)
            a, b = k[head * dim + one], k[head * dim + two]
            out[head * dim + one], out[head * dim + two] = a * c - b * s, b * c + a * s
    return out


def decode(blob: bytes, level: int, p: dict, given: bytes) -> list:
    """For each layer above 0 (values after the level's planes [2*row][T], K and V as [T][2*row])."""
    h = parse_header(blob)
    need(h["codec"] == p["codec"] and h["codec_digest"] == codec_digest(p) and h["model"] == p["model"],
         "the column is of another profile")
    need(all(h[name] == p[name] for name in ("layers", "kv_heads", "head_dim")), "geometry")
    heads, dim, tokens = h["kv_heads"], h["head_dim"], h["tokens"]
    row, group, n = heads * dim, p["group"], LEVELS[level]
    r = Reader(given)
    first = r.number("I")
    need(r.number("I") == tokens and r.number("I") == p["d_model"], "input")
    r.take(4 * tokens)
    embeddings = [struct.unpack(f"<{p['d_model']}f", r.take(4 * p["d_model"])) for _ in range(tokens)]
    halves = [half_value(bits) for bits in struct.unpack(f"<{2 * row * tokens}H", r.take(4 * row * tokens))]
    z, of_token = [], []
    for t in range(tokens):
        kv = [halves[(head * tokens + t) * dim + d] for head in range(2 * heads) for d in range(dim)]
        z.append(rope(p, first + t, kv[:row], True) + kv[row:])
        scale = 1 / math.sqrt(sum(v * v for v in embeddings[t]) / p["d_model"] + 1e-5)
        of_token.append(times(p["token"], [v * scale for v in embeddings[t]]))
    out = []
    for layer in range(p["layers"]):
        planes = []
        for offset, size, crc in h["items"][layer][:n]:
            planes.append(blob[offset:offset + size])
            need(crc32c(planes[-1]) == crc, f"item CRC in layer {layer}")
        if layer == 0:
            need(planes == [bytes([p["codec"], i]) for i in range(n)], "layer 0 is not empty")
            continue
        model = p["layer"][layer]
        for i, plane in enumerate(planes):
            r = open_plane(plane, p["codec"], i)
            if i == 0:
                c, exact = first_plane(r, h, p["tables"], model["table"])
                q = c
            else:
                q = thirds(r, q)
            need(r.at == len(plane), "bytes behind the plane")

        def transformed(x: list) -> list:
            return list(itertools.chain.from_iterable(
                times(m, x[g * group:(g + 1) * group]) for g, m in enumerate(model["inverse"])))

        rows = []
        for t in range(tokens):
            x = list(model["offset"])
            if p["rank_below"] + p["rank_token"] > 0:
                below = [] if p["rank_below"] == 0 else times(model["below"], z[t]) if model["below"] else z[t]
                x = plus(x, times(model["predict"], below + of_token[t]))
            coarse = [run[t] for run in c]
            here = plus(x, transformed([p["step"] * v for v in coarse]))
            factor = 3 ** (n - 1)
            fine = [p["step"] / factor * (run[t] - factor * v) for run, v in zip(q, coarse)]
            y = plus(here, transformed(fine))
            y = rope(p, first + t, y[:row], False) + y[row:]
            y = [min(max(v, -65504.0), 65504.0) for v in y]
            if t in exact:
                y = exact[t]
                here = rope(p, first + t, y[:row], True) + y[row:]
            z[t] = here
            rows.append(y)
        out.append((q, rows))
    return out


def main() -> int:
    data = [open(path, "rb").read() for path in sys.argv[1:4]]
    level = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    for layer, (q, rows) in enumerate(decode(data[0], level, parse_profile(data[1]), data[2]), 1):
        symbols = struct.pack(f"<{sum(map(len, q))}h", *itertools.chain.from_iterable(q))
        most = max(abs(v) for row in rows for v in row)
        print(f"layer {layer}: symbols SHA-256 {hashlib.sha256(symbols).hexdigest()}, values up to {most:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
