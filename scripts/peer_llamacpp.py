#!/usr/bin/env python3
"""llama.cpp as a peer for `sparkv bench`: one process, commands as JSON lines on stdin.

usage: peer_llamacpp.py MODEL.gguf TOKENS.json [--threads N] [--flash-attn]

commands                                answers
  {"op": "info"}                        {"version": "...", "system": "..."}
  {"op": "prefill", "tokens": N}        {"seconds": s}           the first N ids of TOKENS.json, empty cache
  {"op": "decode", "context": N, "steps": K}   {"seconds": s}    K greedy steps after N ids
  {"op": "rss"}                         {"peak_bytes": n}

Needs llama-cpp-python (scripts/peer_venv.sh makes a virtual environment that has it). The ids are the same
that sparkv uses, so both engines do the same work. n_batch = n_ubatch = 512, K/V in f16.
"""
import argparse
import json
import resource
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flash-attn", action="store_true")
    args = parser.parse_args()
    import llama_cpp

    with open(args.tokens, encoding="utf-8") as f:
        tokens = json.load(f)
    llm = llama_cpp.Llama(args.model, n_ctx=len(tokens) + 512, n_batch=512, n_ubatch=512, n_threads=args.threads,
                          n_threads_batch=args.threads, flash_attn=args.flash_attn, verbose=False)

    def prefill(n: int) -> float:
        llm.reset()
        begin = time.perf_counter()
        llm.eval(tokens[:n])
        return time.perf_counter() - begin

    state = {"context": -1}

    def decode(context: int, steps: int) -> float:
        if state["context"] != context:
            prefill(context)
            state["context"] = context
        llm.n_tokens = context
        token = tokens[context % len(tokens)]
        begin = time.perf_counter()
        for _ in range(steps):
            llm.eval([token])
            logits = llm._ctx.get_logits()
            best = max(range(16), key=lambda i: logits[i])  # reading logits is part of a step, sampling is not
            token = tokens[(context + best) % len(tokens)]
        return time.perf_counter() - begin

    for line in sys.stdin:
        command = json.loads(line)
        op = command["op"]
        if op == "info":
            answer = {"version": llama_cpp.__version__,
                      "system": llama_cpp.llama_print_system_info().decode()}
        elif op == "prefill":
            state["context"] = -1
            answer = {"seconds": prefill(int(command["tokens"]))}
        elif op == "decode":
            answer = {"seconds": decode(int(command["context"]), int(command["steps"]))}
        elif op == "rss":
            answer = {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
        else:
            answer = {"error": f"unknown op {op!r}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
