#!/usr/bin/env python3
"""Writes a Llama of any shape with random Q8_0 weights: for speed and formats on shapes that no model at hand has. What it says
means nothing, so neither does a KL. The tokenizer is another GGUF's, its vocabulary filled up with unused tokens.

    scripts/random_llama.py TOKENIZER.gguf OUT.gguf [--shape llama-3.2-1b]      needs: pip install numpy gguf
"""
import argparse

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize

# layers, d_model, ffn, heads, KV heads, head_dim, vocabulary, RoPE base
SHAPES = {"llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, 500000.0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    args = parser.parse_args()
    layers, d, ffn, heads, kv_heads, dim, vocabulary, base = SHAPES[args.shape]
    rng = np.random.default_rng(1)

    writer = GGUFWriter(args.out, "llama")
    writer.add_name(f"random {args.shape}")
    writer.add_context_length(131072)
    writer.add_embedding_length(d)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(dim)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    fields = GGUFReader(args.tokenizer).fields
    for name, field in fields.items():
        if not name.startswith("tokenizer.") or name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            continue
        value = field.contents()
        if name == "tokenizer.ggml.merges":
            writer.add_token_merges(value)
        else:
            writer.add_key_value(name, value, field.types[0])
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    unused = vocabulary - len(tokens)
    writer.add_token_list(tokens + [f"<|unused{i}|>" for i in range(unused)])
    writer.add_token_types(types + [5] * unused)  # 5: unused

    def matrix(name, rows, cols):
        values = rng.standard_normal((rows, cols), dtype=np.float32) / np.sqrt(np.float32(cols))
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    def ones(name):
        writer.add_tensor(name, np.ones(d, np.float32))

    matrix("token_embd.weight", vocabulary, d)
    ones("output_norm.weight")
    for layer in range(layers):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", heads * dim, d)
        matrix(block + "attn_k.weight", kv_heads * dim, d)
        matrix(block + "attn_v.weight", kv_heads * dim, d)
        matrix(block + "attn_output.weight", d, heads * dim)
        matrix(block + "ffn_gate.weight", ffn, d)
        matrix(block + "ffn_up.weight", ffn, d)
        matrix(block + "ffn_down.weight", d, ffn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
