#!/usr/bin/env python3
"""Decodes a column blob with the standard library only, written from common/codec/FORMAT.md alone.

usage: decode_column.py FILE [LEVEL]    prints the header and a digest of the values

Slow and plain on purpose: it follows the order of the specification, not that of the C++ decoder.
"""
import hashlib
import itertools
import struct
import sys

LIMITS = {"layers": 1024, "kv_heads": 1024, "head_dim": 1024, "tokens": 1024, "planes": 16}
CODECS = {1: ("f16", 1, {16: 1}), 2: ("generic", 1, {4: 1, 5: 2, 8: 3}),
          3: ("sparkv-paper", 1, {5: 1, 6: 2, 7: 3}), 4: ("cachegen", 1, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
          5: ("kivi", 1, {2: 1, 3: 2, 4: 3, 5: 4, 8: 5})}


class FormatError(Exception):
    pass


def need(condition, message):
    if not condition:
        raise FormatError(message)


def crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC_OF_BYTE = [crc_of_byte(value) for value in range(256)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_OF_BYTE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        need(self.at + n <= len(self.data), f"needs {n} bytes at {self.at}, {len(self.data) - self.at} left")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, code: str):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]


class Bits:
    """A bit string that begins at the reader's place."""

    def __init__(self, reader: Reader):
        self.reader, self.pool, self.filled = reader, 0, 0

    def take(self, n: int) -> int:
        while self.filled < n:
            self.pool |= self.reader.number("B") << self.filled
            self.filled += 8
        value = self.pool & ((1 << n) - 1)
        self.pool >>= n
        self.filled -= n
        return value

    def end(self):
        need(self.pool == 0, "filling bits are not 0")


# Section 2.
def parse_header(blob: bytes) -> dict:
    r = Reader(blob)
    need(r.take(8) == b"SPKVCOL\x1a", "bad magic")
    version = r.number("H")
    need(version == 1, f"version {version} is not supported")
    need(r.number("H") == 0, "reserved field is not 0")
    h = {"header_bytes": r.number("I"), "codec": r.number("I"), "codec_version": r.number("H"),
         "planes": r.number("B"), "dtype": r.number("B"), "layers": r.number("I"),
         "kv_heads": r.number("I"), "head_dim": r.number("I"), "tokens": r.number("I"),
         "codec_digest": r.take(32).hex(), "model": r.take(32).hex(), "key": r.take(32).hex(),
         "file_bytes": r.number("Q")}
    for name, limit in LIMITS.items():
        need(1 <= h[name] <= limit, f"{name} is {h[name]}")
    need(h["kv_heads"] * h["tokens"] * h["head_dim"] <= 1 << 26, "too many elements")
    need(h["dtype"] == 1, "unknown element type")
    need(h["header_bytes"] == 144 + 8 * h["layers"] * h["planes"] + 2 * h["layers"] * h["kv_heads"] + 4,
         "header_bytes does not fit the geometry")
    need(len(blob) == h["file_bytes"], "file_bytes is not the size")
    need(struct.unpack_from("<I", blob, h["header_bytes"] - 4)[0] == crc32c(blob[:h["header_bytes"] - 4]),
         "header CRC")
    need(h["codec"] in CODECS and CODECS[h["codec"]][1] == h["codec_version"], "codec is not supported")
    h["items"], offset = [], h["header_bytes"]
    for _ in range(h["layers"]):
        row = []
        for _ in range(h["planes"]):
            size, crc = r.number("I"), r.number("I")
            need(1 <= size <= 1 << 28, f"item of {size} bytes")
            row.append((offset, size, crc))
            offset += size
        h["items"].append(row)
    need(offset == h["file_bytes"], "items do not fill the file")
    h["active_blocks"] = [[r.number("H") for _ in range(h["kv_heads"])] for _ in range(h["layers"])]
    return h


# Section 3.
def symbols(r: Reader, runs: int, length: int, bits: int) -> list:
    """runs lists of length symbols."""
    mode = r.number("B")
    if mode == 0:
        source = Bits(r)
        out = [[source.take(bits) for _ in range(length)] for _ in range(runs)]
        source.end()
        return out
    if mode == 1:
        value = r.number("B")
        need(value < 1 << bits, "constant beyond the alphabet")
        return [[value] * length for _ in range(runs)]
    need(mode == 2, f"unknown mode {mode}")
    need(runs > 0 and length > 0, "rANS for no symbols")
    tables = r.number("B") + 1
    need(tables <= 64, "too many tables")
    id_bits = (tables - 1).bit_length()
    source = Bits(r)
    ids = [source.take(id_bits) for _ in range(runs)]
    need(all(i < tables for i in ids), "no such table")
    frequencies, slots = [], []
    for _ in range(tables):
        f = []
        while len(f) < 1 << bits:
            n = source.take(4)
            if n == 14:
                f += [0] * (source.take(8) + 1)
            else:
                need(n <= 13, "bad width")
                f.append(0 if n == 0 else (1 << (n - 1)) | source.take(n - 1))
        need(len(f) == 1 << bits, "zeros beyond the alphabet")
        need(sum(f) == 4096, "frequencies do not sum to 4096")
        frequencies.append(f)
        slots.append([s for s, count in enumerate(f) for _ in range(count)])
    source.end()
    words = r.number("I")
    x = [r.number("I") for _ in range(min(32, length))]
    need(all(state >= 65536 for state in x), "state below the bound")
    stream = struct.unpack(f"<{words}H", r.take(2 * words))
    starts = [list(itertools.accumulate([0] + f[:-1])) for f in frequencies]
    used, out = 0, []
    for run in range(runs):
        f, c, table, row = frequencies[ids[run]], starts[ids[run]], slots[ids[run]], []
        for j in range(length):
            lane = j % 32
            slot = x[lane] & 4095
            s = table[slot]
            x[lane] = f[s] * (x[lane] >> 12) + slot - c[s]
            if x[lane] < 65536:
                need(used < words, "words run out")
                x[lane] = (x[lane] << 16) | stream[used]
                used += 1
            row.append(s)
        out.append(row)
    need(used == words and all(state == 65536 for state in x), "the stream does not end where it should")
    return out


# Section 3.1.
def halves(r: Reader, runs: int, length: int) -> list:
    """runs lists of length finite f16 bits."""
    rows = symbols(r, 2 * runs, length, 8)
    out = [[low | high << 8 for low, high in zip(rows[2 * i], rows[2 * i + 1])] for i in range(runs)]
    need(all(bits & 0x7C00 != 0x7C00 for row in out for bits in row), "not finite")
    return out


def refine(r: Reader, q: list, k: int) -> list:
    run = min(1024, len(q))
    rows = symbols(r, -(-len(q) // run), run, (k - 1).bit_length())
    flat = [s for row in rows for s in row]
    need(all(s < k for s in flat) and not any(flat[len(q):]), "refinement symbol or filling")
    out = list(q)
    for s, place in zip(flat, sorted(range(len(q)), key=lambda i: q[i])):
        out[place] = k * q[place] + s
    return out


def huffman(r: Reader, n: int, bits: int) -> list:
    mode = r.number("B")
    if mode == 1:
        value = r.number("B")
        need(value < 1 << bits, "constant beyond the alphabet")
        return [value] * n
    need(mode == 2, f"unknown mode {mode}")
    source = Bits(r)
    lengths = [source.take(4) for _ in range(1 << bits)]
    source.end()
    need(max(lengths) <= 12, "code too long")
    need(sum(1 << (12 - x) for x in lengths if x) == 4096, "not a complete code")
    codes, code, last = {}, 0, 0
    for length, s in sorted((x, s) for s, x in enumerate(lengths) if x):
        code <<= length - last
        codes[length, code] = s
        code, last = code + 1, length
    inner = Reader(r.take(r.number("I")))
    source, out = Bits(inner), []
    while len(out) < n:
        code, length = 0, 0
        while (length, code) not in codes:
            code, length = code << 1 | source.take(1), length + 1
        out.append(codes[length, code])
    source.end()
    need(inner.at == len(inner.data), "bytes behind the codes")
    return out


# Section 4. A block is {(side, head, token, channel): f16 bits}.
def f32(x: float) -> float:
    return struct.unpack("<f", struct.pack("<f", x))[0]


def half_bits(x: float) -> int:
    return struct.unpack("<H", struct.pack("<e", x))[0]


def half_value(bits: int) -> float:
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def open_plane(plane: bytes, codec: int, number: int) -> Reader:
    r = Reader(plane)
    need(r.number("B") == codec and r.number("B") == number, "plane tag")
    return r


def close_plane(r: Reader):
    need(r.at == len(r.data), "bytes behind the plane")


def decode_f16(h: dict, planes: list) -> dict:
    heads, tokens, dim = h["kv_heads"], h["tokens"], h["head_dim"]
    r = open_plane(planes[0], 1, 0)
    high = symbols(r, 2 * heads * dim, tokens, 8)
    low = symbols(r, 2 * heads * dim, tokens, 8)
    close_plane(r)
    return {(side, head, t, d): high[(side * heads + head) * dim + d][t] << 8
            | low[(side * heads + head) * dim + d][t]
            for side in range(2) for head in range(heads) for t in range(tokens) for d in range(dim)}


def parameters(runs: list, head: int, i: int) -> tuple:
    lo = runs[4 * head][i] | runs[4 * head + 1][i] << 8
    step = runs[4 * head + 2][i] | runs[4 * head + 3][i] << 8
    need(lo & 0x7C00 != 0x7C00 and step < 0x7C00, "lo or step")
    return half_value(lo), half_value(step)


def decode_generic(h: dict, planes: list) -> dict:
    heads, tokens, dim = h["kv_heads"], h["tokens"], h["head_dim"]
    r = open_plane(planes[0], 2, 0)
    exact = r.number("H")
    need(exact <= tokens, "exact tokens")
    block = {}
    for side in range(2):
        for head in range(heads):
            for t in range(exact):
                for d in range(dim):
                    block[side, head, t, d] = r.number("H")
    outliers = [(r.number("I"), r.number("H")) for _ in range(r.number("I"))]
    left = tokens - exact
    if left > 0:
        k = symbols(r, 4 * heads, dim, 8)
        v = symbols(r, 4 * heads, left, 8)
        codes = symbols(r, 2 * heads * dim, left, 4)
        close_plane(r)
        for number, bits in list(enumerate((4, 1, 3)))[1:len(planes)]:
            r = open_plane(planes[number], 2, number)
            lower = symbols(r, 2 * heads * dim, left, bits)
            close_plane(r)
            codes = [[c << bits | s for c, s in zip(*rows)] for rows in zip(codes, lower)]
        scale, offset = {1: (16, 7.5), 2: (8, 3.5), 3: (1, 0.0)}[len(planes)]
        for side in range(2):
            for head in range(heads):
                for d in range(dim):
                    for t in range(left):
                        lo, step = parameters(k, head, d) if side == 0 else parameters(v, head, t)
                        c = scale * codes[(side * heads + head) * dim + d][t] + offset
                        # A double holds the product of two f32 exactly, and rounding their sum twice changes nothing.
                        value = f32(lo + f32(step * c))
                        block[side, head, exact + t, d] = half_bits(min(max(value, -65504.0), 65504.0))
    else:
        close_plane(r)
        for number in range(1, len(planes)):
            close_plane(open_plane(planes[number], 2, number))
    last = -1
    for index, bits in outliers:
        need(last < index < 2 * heads * tokens * dim, "outlier index")
        last = index
        row, d = divmod(index, dim)
        row, t = divmod(row, tokens)
        side, head = divmod(row, heads)
        block[side, head, t, d] = bits
    return block


def decode_paper(h: dict, planes: list) -> dict:
    heads, tokens, dim = h["kv_heads"], h["tokens"], h["head_dim"]
    n = tokens * dim
    for number, plane in enumerate(planes):
        r = open_plane(plane, 3, number)
        if number == 0:
            bits = r.number("B")
            need(1 <= bits <= 6, "bits")
            books = halves(r, 2 * heads, 1 << bits)
            codes = huffman(r, heads * n, bits) + huffman(r, heads * n, bits)
        else:
            books = halves(r, 2 * heads, 1 << (bits + number))
            lower = [s for row in symbols(r, 2 * heads, n, 1) for s in row]
            codes = [c << 1 | s for c, s in zip(codes, lower)]
        close_plane(r)
    places = itertools.product(range(2), range(heads), range(tokens), range(dim))
    return {place: books[i // n][codes[i]] for i, place in enumerate(places)}


def channel_runs(h: dict):
    """The places of one side's values in the order of the channel runs."""
    return [(head, t, d) for head in range(h["kv_heads"]) for d in range(h["head_dim"]) for t in range(h["tokens"])]


def scaled(lo: float, step: float, c: float) -> int:
    return half_bits(min(max(f32(lo + f32(step * c)), -65504.0), 65504.0))


def decode_cachegen(h: dict, planes: list) -> dict:
    tokens, runs = h["tokens"], h["kv_heads"] * h["head_dim"]
    r = open_plane(planes[0], 4, 0)
    first = [r.number("B"), r.number("B")]
    need(set(first) <= {8, 12}, "cell")
    scales = halves(r, 2, tokens)
    need(all(bits < 0x8000 for row in scales for bits in row), "negative scale")
    rows = symbols(r, 2 * runs, tokens, 4)
    close_plane(r)
    codes = [[s for row in rows[side * runs:(side + 1) * runs] for s in row] for side in range(2)]
    columns = [[first[0], 4, 4, 2, 1], [8, 4, 4, 2, 1] if first[1] == 8 else [12, 12, 4, 2, 1]]
    for number in range(1, len(planes)):
        r = open_plane(planes[number], 4, number)
        for side in range(2):
            before, after = columns[side][number - 1], columns[side][number]
            if before > after:
                codes[side] = refine(r, codes[side], before // after)
        close_plane(r)
    block = {}
    for side in range(2):
        s, zero = columns[side][len(planes) - 1], {8: 60, 12: 66}[first[side]]
        steps = [f32(half_value(bits) / 60) for bits in scales[side]]
        for q, (head, t, d) in zip(codes[side], channel_runs(h)):
            block[side, head, t, d] = scaled(0.0, steps[t], s * q + (s - 1) / 2 - zero)
    return block


def decode_kivi(h: dict, planes: list) -> dict:
    heads, tokens, dim = h["kv_heads"], h["tokens"], h["head_dim"]
    r = open_plane(planes[0], 5, 0)
    g = r.number("H")
    need(32 <= g <= 1024, "group")
    token_groups, channel_groups = -(-tokens // g), -(-dim // g)
    parameter = [halves(r, 2 * heads * token_groups, dim), halves(r, 2 * heads * channel_groups, tokens)]
    need(all(bits < 0x8000 for side in parameter for row in side[1::2] for bits in row), "negative step")
    rows = symbols(r, 2 * heads * dim, tokens, 2)
    close_plane(r)
    half = heads * dim
    codes = [[s for row in rows[side * half:(side + 1) * half] for s in row] for side in range(2)]
    known = 2
    for number in range(1, len(planes)):
        bits = {1: 1, 2: 1, 3: 1, 4: 3}[number]
        r = open_plane(planes[number], 5, number)
        codes = [refine(r, side, 1 << bits) for side in codes]
        close_plane(r)
        known += bits
    block = {}
    for side in range(2):
        for q, (head, t, d) in zip(codes[side], channel_runs(h)):
            group, i = (head * token_groups + t // g, d) if side == 0 else (head * channel_groups + d // g, t)
            lo, step = (half_value(parameter[side][2 * group + j][i]) for j in range(2))
            block[side, head, t, d] = scaled(lo, step, 2.0 ** (4 - known) * q + 2.0 ** (3 - known) - 0.5)
    return block


DECODERS = {"f16": decode_f16, "generic": decode_generic, "sparkv-paper": decode_paper,
            "cachegen": decode_cachegen, "kivi": decode_kivi}


def decode_column(blob: bytes, level: int) -> tuple:
    """(header, f16 bits [layers][2][kv_heads][tokens][head_dim] as bytes)."""
    h = parse_header(blob)
    name, _, levels = CODECS[h["codec"]]
    need(level in levels, f"codec {name} has no level {level}")
    out = []
    for layer in range(h["layers"]):
        planes = []
        for offset, size, crc in h["items"][layer][:levels[level]]:
            planes.append(blob[offset:offset + size])
            need(crc32c(planes[-1]) == crc, f"item CRC in layer {layer}")
        block = DECODERS[name](h, planes)
        out += [block[key] for key in sorted(block)]
    return h, struct.pack(f"<{len(out)}H", *out)


def main() -> int:
    with open(sys.argv[1], "rb") as file:
        blob = file.read()
    levels = CODECS[parse_header(blob)["codec"]][2]
    level = int(sys.argv[2]) if len(sys.argv) > 2 else max(levels)
    header, values = decode_column(blob, level)
    print({key: value for key, value in header.items() if key != "items"})
    print(f"level {level}: {len(values) // 2} values, SHA-256 {hashlib.sha256(values).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
