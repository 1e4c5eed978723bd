#!/usr/bin/env python3
"""Writes tests/golden/smollm2/: what llama.cpp and an independent f32 forward compute for SmolLM2-135M-Instruct.Q4_1.gguf.

    tests/golden/make_smollm2_golden.py SHIPPED.gguf F16.gguf [--ids FILE]
      F16.gguf comes from scripts/make_f16_gguf.py.   needs: pip install numpy gguf torch llama-cpp-python==0.3.36

prompts.json       per prompt: token ids (from --ids, a JSON object name -> ids, else from the present file), and of each
                   engine 32 greedy ids and the ten best logits of the first generated token
positions_f16.bin  llama.cpp on the F16 file, positions_q4_1.bin on the shipped one: its distribution after each of 1,024
                   tokens of two texts. u32 texts; per text u32 tokens n, i32 ids[n]; then per position of all texts
                   u16 ids[32], f32 logprobs[32], f32 probability of all other ids
"""
import argparse
import json
import os
import struct

import gguf
import llama_cpp
import numpy as np
import torch
from gguf.quants import dequantize

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "smollm2")
ROOT = os.path.dirname(os.path.dirname(HERE))
TEXTS = ("scripts/demo/hacker-folklore.txt", "proto/sparkv/v1/edge.proto")
TEXT_TOKENS, TOP, GREEDY = 1024, 32, 32


class Fp32:
    """SmolLM2 in f32 on the dequantized weights, written from the architecture's definition."""

    def __init__(self, path):
        self.w = {t.name: torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))
                  for t in gguf.GGUFReader(path).tensors}
        self.layers, self.heads, self.kv, self.d = 30, 9, 3, 64

    def norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.w[name]

    def rope(self, x, positions):  # [n][heads][d], interleaved pairs
        f = 100000.0 ** (-torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)
        a = positions.double()[:, None, None] * f
        cos, sin = a.cos().float(), a.sin().float()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    def forward(self, ids, cache):
        """Logits of the last token; cache: list of (k, v) per layer, replaced."""
        begin = cache[0][0].shape[0] if cache else 0
        n = len(ids)
        positions = torch.arange(begin, begin + n)
        h = self.w["token_embd.weight"][torch.tensor(ids)]
        mask = torch.arange(begin + n)[None] > positions[:, None]
        for layer in range(self.layers):
            b = f"blk.{layer}."
            x = self.norm(h, b + "attn_norm.weight")
            q = self.rope((x @ self.w[b + "attn_q.weight"].T).view(n, self.heads, self.d), positions)
            k = self.rope((x @ self.w[b + "attn_k.weight"].T).view(n, self.kv, self.d), positions)
            v = (x @ self.w[b + "attn_v.weight"].T).view(n, self.kv, self.d)
            if begin:
                k, v = torch.cat((cache[layer][0], k)), torch.cat((cache[layer][1], v))
            if len(cache) <= layer:
                cache.append((k, v))
            cache[layer] = (k, v)
            out = torch.empty(n, self.heads, self.d)
            for head in range(self.heads):
                kv = head // (self.heads // self.kv)
                s = (q[:, head] @ k[:, kv].T / 8.0).masked_fill(mask, float("-inf"))
                out[:, head] = s.softmax(-1) @ v[:, kv]
            h = h + out.flatten(1) @ self.w[b + "attn_output.weight"].T
            x = self.norm(h, b + "ffn_norm.weight")
            gate = torch.nn.functional.silu(x @ self.w[b + "ffn_gate.weight"].T)
            h = h + (gate * (x @ self.w[b + "ffn_up.weight"].T)) @ self.w[b + "ffn_down.weight"].T
        return (self.norm(h[-1], "output_norm.weight") @ self.w["token_embd.weight"].T).numpy()


def greedy_run(step, ids):
    """step(ids) -> logits of the last token."""
    logits = step(ids)
    best = np.argsort(-logits, kind="stable")[:10]
    top = [[int(i), round(float(logits[i]), 5)] for i in best]
    out = []
    for _ in range(GREEDY):
        out.append(int(np.argmax(logits)))
        logits = step(out[-1:])
    return {"greedy": out, "top10": top}


def open_llama(path, logits_all=False):
    return llama_cpp.Llama(path, n_ctx=4096, n_batch=512, n_ubatch=512, n_threads=2, logits_all=logits_all,
                           verbose=False, flash_attn=False)


def llama_step(llm):
    def step(ids):
        llm.eval(ids)
        logits = llama_cpp.llama_get_logits_ith(llm.ctx, -1)
        return np.ctypeslib.as_array(logits, shape=(llm.n_vocab(),)).copy()
    return step


def write_prompts(shipped, prompt_ids):
    llm, fp32 = open_llama(shipped), Fp32(shipped)
    prompts = {}
    for name, ids in prompt_ids.items():
        llm.reset()
        cache = []
        with torch.no_grad():
            prompts[name] = {"ids": ids, "llamacpp": greedy_run(llama_step(llm), ids),
                             "fp32": greedy_run(lambda x: fp32.forward(x, cache), ids)}
        print(name, len(ids), "greedy ids in common",
              sum(a == b for a, b in zip(prompts[name]["llamacpp"]["greedy"], prompts[name]["fp32"]["greedy"])))
    with open(os.path.join(OUT, "prompts.json"), "w") as f:
        f.write("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in prompts.items()) + "\n}\n")


def write_positions(path, name):
    llm = open_llama(path, logits_all=True)
    texts, rows = [], []
    for text in TEXTS:
        with open(os.path.join(ROOT, text), "rb") as f:
            ids = llm.tokenize(f.read(), add_bos=False, special=False)[:TEXT_TOKENS]
        assert len(ids) == TEXT_TOKENS, f"{text} has {len(ids)} tokens"
        texts.append(ids)
        llm.reset()
        llm.eval(ids)
        for row in np.array(llm.scores[:len(ids)], dtype=np.float64):
            logprob = row - row.max()
            logprob -= np.log(np.exp(logprob).sum())
            best = np.argsort(-logprob, kind="stable")[:TOP]
            tail = max(0.0, 1.0 - np.exp(logprob[best]).sum())
            rows.append(best.astype("<u2").tobytes() + logprob[best].astype("<f4").tobytes() + struct.pack("<f", tail))
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(struct.pack("<I", len(texts)))
        for ids in texts:
            f.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
        f.write(b"".join(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shipped")
    parser.add_argument("f16")
    parser.add_argument("--ids")
    args = parser.parse_args()
    os.makedirs(OUT, exist_ok=True)
    if args.ids:
        with open(args.ids) as f:
            prompt_ids = json.load(f)
    else:
        with open(os.path.join(OUT, "prompts.json")) as f:
            prompt_ids = {k: v["ids"] for k, v in json.load(f).items()}
    write_prompts(args.shipped, prompt_ids)
    write_positions(args.f16, "positions_f16.bin")
    write_positions(args.shipped, "positions_q4_1.bin")


if __name__ == "__main__":
    main()
