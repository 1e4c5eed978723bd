#!/usr/bin/env python3
"""Turns figures files of `sparkv bench --json` into the README's tables.

usage: bench_report.py FIGURES.json... [--readme README.md]

Prints Markdown; with --readme replaces what stands between the figures markers.
"""
import argparse
import datetime
import json
import pathlib
import re

BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
POLICIES = ["sparkv", "cake", "stream", "local"]


def show(value, unit=""):
    if value is None:
        return "not measured"
    if unit == "ms":
        return f"{value:,.0f} ms"
    if unit == "x":
        return f"{value:.2f}×"
    return f"{value:,.1f} {unit}".strip()


def load_table(figures):
    rows = {}
    for f in figures.values():
        if m := re.fullmatch(r"load\.ttft_ms\.(\w+)\.(\w+)\.(\d+)", f["figure"]):
            rows.setdefault((int(m[3]), m[2]), {})[m[1]] = f
    if not rows:
        return []
    out = ["Time to first token by policy (median of paired runs over the shaped link):", "",
           "| tokens | link | " + " | ".join(POLICIES) + " | best single path ÷ sparkv |",
           "|---|---|" + "---|" * (len(POLICIES) + 1)]

    def rate(item):
        note = next(iter(item[1].values()))["note"]
        return item[0][0], float(note.split()[0]) if note[:1].isdigit() else 0

    for (tokens, label), by_policy in sorted(rows.items(), key=rate):
        note = next(iter(by_policy.values()))["note"]
        ratio = figures.get(f"load.vs_best_single.{label}.{tokens}")
        spread = f" ({ratio['min']:.2f}–{ratio['max']:.2f})" if ratio and ratio["min"] is not None else ""
        cells = [show(by_policy[p]["value"], "ms") if p in by_policy else "" for p in POLICIES]
        out.append(f"| {tokens:,} | {note} ({label}) | " + " | ".join(cells) +
                   f" | {show(ratio['value'], 'x') if ratio else ''}{spread} |")
    return out + [""]


def engine_table(figures):
    rows = []
    for kind, label in (("prefill", "prefill {} tokens"), ("decode", "decode after {}")):
        sizes = sorted(int(f.rsplit(".", 1)[1]) for f in figures if f.startswith(f"{kind}.tokens_per_s."))
        for size in sizes:
            ours = figures[f"{kind}.tokens_per_s.{size}"]
            if kind == "prefill":
                ratios = [figures.get(f"prefill.vs_llamacpp_f16.{size}"), figures.get(f"prefill.vs_llamacpp_shipped.{size}")]
            else:
                ratios = [None, figures.get(f"decode.vs_llamacpp.{size}")]
            cells = []
            for r in ratios:
                if r is None:
                    cells.append("")
                elif r["value"] is None:
                    cells.append("not measured")
                else:
                    cells.append(f"{r['value']:.2f}× ({r['min']:.2f}–{r['max']:.2f}); {r['peer']} {r['peer_value']:.0f}/s")
            rows.append(f"| {label.format(size)} | {ours['value']:.0f} | {cells[0]} | {cells[1]} |")
    if not rows:
        return []
    return ["Local engine, tokens/s, and ratio to llama.cpp on the same ids in the same run:", "",
            "| | tokens/s | vs llama.cpp, same values as F16 | vs llama.cpp, weights as shipped (decode: its best) |",
            "|---|---|---|---|"] + rows + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--readme")
    args = parser.parse_args()
    figures = {}
    for path in args.files:
        for figure in json.loads(pathlib.Path(path).read_text(encoding="utf-8")):
            figures[figure["figure"]] = figure
    lines = load_table(figures) + engine_table(figures)
    if memory := figures.get("prefill.peak_rss_bytes"):
        peer = f"; {memory['peer']} {memory['peer_value'] / 2**20:.0f} MiB" if memory["peer_value"] else ""
        lines.append(f"Peak memory of the engine in that run: {memory['value'] / 2**20:.0f} MiB{peer}.")
    any_figure = next(iter(figures.values()))
    lines.append(f"Measured {datetime.date.today().isoformat()}, {any_figure['machine']}, commit {any_figure['commit']}.")
    text = "\n".join(lines)
    if not args.readme:
        print(text)
        return
    readme = pathlib.Path(args.readme)
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    readme.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
