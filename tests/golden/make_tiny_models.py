#!/usr/bin/env python3
"""Writes tests/golden/tiny/: small random Llama, Qwen2 and Qwen3 models as GGUF F32, and the logits that `transformers` computes
for them in f32.

    tests/golden/make_tiny_models.py       needs: pip install numpy gguf 'transformers<5' torch

NAME.gguf    the model. Llama's Q and K rows are permuted for interleaved rotary pairs as llama.cpp's converter does.
NAME.logits  u32 tokens n, u32 vocabulary v, i32 ids[n], f32 logits[n][v]
"""
import math
import os
import struct

import gguf
import numpy as np
import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

VOCABULARY = 260
TOKENS = 40
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny")


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in kept:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return [table[b] for b in range(256)]


def permute(w, heads):
    """Split-half rows of each head to interleaved pairs."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def llama3_factors(config):
    """The frequency divisors that Llama 3.x's scaling amounts to, as in llama.cpp's converter."""
    s = config.rope_scaling
    low = s["original_max_position_embeddings"] / s["low_freq_factor"]
    high = s["original_max_position_embeddings"] / s["high_freq_factor"]
    factors = []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * math.pi * config.rope_theta ** (i / config.head_dim)
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(s["factor"])
        else:
            smooth = (s["original_max_position_embeddings"] / wavelength - s["low_freq_factor"]) / (
                s["high_freq_factor"] - s["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def make(name, arch, model_class, config, seed):
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            # Large enough that attention is peaked and that a wrong rotation or a swapped head shows.
            if p.dim() == 1:
                p.copy_((1.0 if "norm" in key else 0.0) + 0.2 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (1.0 / math.sqrt(p.shape[1])))
    w = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    out = gguf.GGUFWriter(os.path.join(OUT, name + ".gguf"), arch)
    out.add_name(name)
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_theta)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2" if arch != "llama" else "gpt-2")
    special = [f"<|{s}|>" for s in ("endoftext", "im_start", "im_end")] + ["ab"]
    out.add_token_list(byte_alphabet() + special)
    out.add_token_types([1] * 256 + [3] * 3 + [1])
    out.add_token_merges(["a b"])
    out.add_eos_token_id(258)
    out.add_pad_token_id(256)
    out.add_add_bos_token(False)

    def tensor(target, source):
        out.add_tensor(target, np.ascontiguousarray(source, dtype=np.float32))

    if config.rope_scaling:
        tensor("rope_freqs.weight", llama3_factors(config))
    tensor("token_embd.weight", w["model.embed_tokens.weight"])
    tensor("output_norm.weight", w["model.norm.weight"])
    if not config.tie_word_embeddings:
        tensor("output.weight", w["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        a, b = f"model.layers.{layer}.", f"blk.{layer}."
        tensor(b + "attn_norm.weight", w[a + "input_layernorm.weight"])
        tensor(b + "ffn_norm.weight", w[a + "post_attention_layernorm.weight"])
        for side, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads), ("v", 0)):
            m = w[a + f"self_attn.{side}_proj.weight"]
            tensor(b + f"attn_{side}.weight", permute(m, heads) if arch == "llama" and heads else m)
            if arch == "qwen2":
                tensor(b + f"attn_{side}.bias", w[a + f"self_attn.{side}_proj.bias"])
            if arch == "qwen3" and side != "v":
                tensor(b + f"attn_{side}_norm.weight", w[a + f"self_attn.{side}_norm.weight"])
        tensor(b + "attn_output.weight", w[a + "self_attn.o_proj.weight"])
        for side in ("gate", "up", "down"):
            tensor(b + f"ffn_{side}.weight", w[a + f"mlp.{side}_proj.weight"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()

    ids = torch.randint(0, 256, (TOKENS,), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(ids[None]).logits[0].float().numpy()
    with open(os.path.join(OUT, name + ".logits"), "wb") as f:
        f.write(struct.pack("<II", TOKENS, VOCABULARY))
        f.write(ids.numpy().astype("<i4").tobytes())
        f.write(logits.astype("<f4").tobytes())
    print(name, "logits", logits.min(), "..", logits.max())


def main():
    os.makedirs(OUT, exist_ok=True)
    common = dict(vocab_size=VOCABULARY, max_position_embeddings=256, attn_implementation="eager",
                  torch_dtype=torch.float32)
    make("llama", "llama", LlamaForCausalLM,
         LlamaConfig(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, rope_theta=10000.0, rms_norm_eps=1e-5,
                     tie_word_embeddings=True, **common), 1)
    make("llama3", "llama", LlamaForCausalLM,
         LlamaConfig(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=1, head_dim=16, rope_theta=500000.0, rms_norm_eps=1e-5,
                     tie_word_embeddings=False,
                     rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                       original_max_position_embeddings=32), **common), 2)
    make("qwen2", "qwen2", Qwen2ForCausalLM,
         Qwen2Config(hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=4, head_dim=12, rope_theta=1000000.0, rms_norm_eps=1e-6,
                     tie_word_embeddings=True, **common), 3)
    make("qwen3", "qwen3", Qwen3ForCausalLM,
         Qwen3Config(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
                     num_key_value_heads=3, head_dim=24, rope_theta=1000000.0, rms_norm_eps=1e-6,
                     tie_word_embeddings=True, **common), 4)


if __name__ == "__main__":
    main()
