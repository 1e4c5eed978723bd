#!/usr/bin/env python3
"""Writes fuzz/corpus/gguf_reader: small valid GGUF files and hostile ones. Standard library only.

usage: make_gguf_corpus.py [FOLDER]
"""
import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
# type id -> values and bytes of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)}


def string(text):
    return struct.pack("<Q", len(text)) + text


def value(kind, v):
    return string(v) if kind == STRING else struct.pack("<" + CODES[kind], v)


def key(name, kind, v):
    return string(name) + struct.pack("<I", kind) + value(kind, v)


def array(name, kind, elements):
    return string(name) + struct.pack("<IIQ", ARRAY, kind, len(elements)) + b"".join(value(kind, v) for v in elements)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + \
        struct.pack("<IQ", kind, offset)


def gguf(keys, tensors=(), data=b"", version=3, alignment=32, n_keys=None, n_tensors=None):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                                len(keys) if n_keys is None else n_keys)
    out += b"".join(keys) + b"".join(tensors)
    if data:
        out += bytes(-len(out) % alignment) + data
    return out


def every_type():
    tensors, data = [], b""
    for kind, (values, size) in BLOCKS.items():
        tensors.append(tensor(b"t%d" % kind, [values, 2], kind, len(data)))
        data += bytes((7 * i + kind) & 0x3B for i in range(2 * size))
        data += bytes(-len(data) % 32)
    return tensors, data


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "corpus" / "gguf_reader"
    out.mkdir(parents=True, exist_ok=True)
    scalars = [key(b"k%d" % kind, kind, 1) for kind in CODES]
    model = [key(b"general.architecture", STRING, b"llama"), key(b"llama.block_count", U32, 2),
             key(b"llama.rope.freq_base", F32, 1e5),
             array(b"tokenizer.ggml.tokens", STRING, [b"a", b"", b"\xe6\xad"]),
             array(b"tokenizer.ggml.token_type", I32, [1, 3, 6]), array(b"scores", F32, [0.5, -1.0])]
    tensors, data = every_type()
    align = b"general.alignment"
    files = {
        "valid_v2": gguf(model, [tensor(b"t", [32, 2], 3, 0)], bytes(40), version=2),
        "valid_v3": gguf(model, [tensor(b"t", [32, 2], 3, 0), tensor(b"u", [3], 0, 64)], bytes(76)),
        "valid_scalars": gguf(scalars),
        "valid_types": gguf(model, tensors, data),
        "valid_align8": gguf([key(align, U32, 8)], [tensor(b"t", [5], 0, 0)], bytes(20), alignment=8),
        "valid_empty": gguf([]),
        "g1_zero_dim": gguf([], [tensor(b"t", [1, 0], 0, 0)]),
        "g2_align_0": gguf([key(align, U32, 0)]),
        "g2_align_3": gguf([key(align, U32, 3)]),
        "g2_align_1g": gguf([key(align, U32, 1 << 30)], [tensor(b"t", [8], 0, 0)]),
        "g2_align_i32": gguf([key(align, I32, 32)]),
        "g3_huge_key": gguf([], n_keys=1) + struct.pack("<Q", 0xFFFFFFFFFFFF),
        "g3_negative_key": gguf([], n_keys=1) + struct.pack("<Q", 1 << 63),
        "g3_empty_key": gguf([key(b"", U8, 0)]),
        "g3_key_count": gguf([], n_keys=(1 << 64) - 1),
        "g3_tensor_count": gguf([], n_tensors=1 << 58),
        "g7_repeated_token": gguf([array(b"tokenizer.ggml.tokens", STRING, [b"a", b"a", b"b"]),
                                   key(b"tokenizer.ggml.eos_token_id", U32, 0xFFFFFFFF)]),
        "array_count": gguf([string(b"a") + struct.pack("<IIQ", ARRAY, U32, 1 << 62)]),
        "array_nested": gguf([string(b"a") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 50]),
        "dims_overflow": gguf([], [tensor(b"t", [1 << 33, 1 << 33], 0, 0)]),
        "offset_overflow": gguf([], [tensor(b"t", [8], 0, (1 << 64) - 32)], bytes(64)),
        "type_unknown": gguf([], [tensor(b"t", [256], 23, 0)], bytes(136)),
        "key_twice": gguf([key(b"k", U8, 1), key(b"k", U8, 1)]),
        "tensor_twice": gguf([], [tensor(b"t", [8], 0, 0), tensor(b"t", [8], 0, 32)], bytes(64)),
        "version_1": gguf([], version=1),
        "big_endian": gguf([], version=0x03000000),
    }
    for name, content in files.items():
        (out / f"{name}.gguf").write_bytes(content)
    print(f"{out}: {len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
