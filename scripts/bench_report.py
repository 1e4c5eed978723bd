#!/usr/bin/env python3
"""Turns figures files of `sparkv bench --json` into the README's tables.

usage: bench_report.py FIGURES.json... [--readme README.md]

Prints Markdown; with --readme replaces what stands between the markers of the sections that the files have figures of:
`figures` (loads and the engine) and `codec`.
"""
import argparse
import datetime
import json
import pathlib
import re

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


def number(figures, name, form="{:,.0f}"):
    figure = figures.get(name)
    if figure is None or figure["value"] is None:
        return ""
    return form.format(figure["value"])


def codec_table(figures):
    levels = {}
    for name in figures:
        if m := re.fullmatch(r"codec\.bytes_per_token\.([\w-]+)\.level(\d+)", name):
            levels.setdefault(m[1], []).append(int(m[2]))
    if not levels:
        return []
    first = {c: figures[f"codec.bytes_per_token.{c}.level{sorted(ls)[0]}"] for c, ls in levels.items()}
    out = [f"Container bytes a token, everything charged, and what the model then says (mean of {first['generic']['n']} contexts):", "",
           "| codec | level | B/token | KL | copy KL | top-1 | ΔNLL |", "|---|---|---|---|---|---|---|"]
    for codec in sorted(levels, key=lambda c: first[c]["value"]):
        for level in sorted(levels[codec]):
            key = f"{codec}.level{level}"
            cells = [number(figures, f"codec.{what}.{key}", form) for what, form in
                     (("bytes_per_token", "{:,.0f}"), ("kl", "{:.6f}"), ("copy_kl", "{:.6f}"), ("top1", "{:.4f}"), ("delta_nll", "{:+.4f}"))]
            out.append(f"| `{codec}` | {level} | " + " | ".join(cells) + " |")
    out += ["", "| codec | B/token at KL .01 | encode MB/s | decode and finish MB/s (limit of its products) | decoding's share of decoding + transfer at 20 and 80 Mbit/s |",
            "|---|---|---|---|---|"]
    for codec in sorted(levels, key=lambda c: first[c]["value"]):
        finish = figures.get(f"codec.finish_mb_per_s.{codec}")
        speed = number(figures, f"codec.finish_mb_per_s.{codec}")
        if finish and finish.get("limit"):
            speed += f" ({finish['limit']:.0f})"
        shares = [number(figures, f"codec.decode_share.{rate}mbit.{codec}", "{:.0%}") for rate in (20, 80)]
        out.append(f"| `{codec}` | {number(figures, f'codec.bytes_per_token_at_kl_0.01.{codec}') or 'not bracketed'} | "
                   f"{number(figures, f'codec.encode_mb_per_s.{codec}')} | {speed} | {', '.join(s for s in shares if s)} |")
    ratio = figures.get("codec.ratio_vs_cachegen_at_kl_0.01")
    if ratio and ratio["value"]:
        out += ["", f"At KL .01 `aatc-pred` takes 1/{ratio['value']:.2f} of `cachegen`'s bytes. Entropy decoding of `aatc-pred`: "
                    f"{number(figures, 'codec.decode_msymbols_per_s')} M symbols/s on one core. Speeds are of f16 K and V on one core."]
    return out + [""]


def measured(figures):
    any_figure = next(iter(figures.values()))
    return f"Measured {datetime.date.today().isoformat()}, {any_figure['machine']}, commit {any_figure['commit']}."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--readme")
    args = parser.parse_args()
    figures = {}
    for path in args.files:
        for figure in json.loads(pathlib.Path(path).read_text(encoding="utf-8")):
            figures[figure["figure"]] = figure
    sections = {}
    if codec := {k: f for k, f in figures.items() if k.startswith("codec.")}:
        sections["codec"] = codec_table(codec) + [measured(codec)]
    rest = {k: f for k, f in figures.items() if k not in codec}
    lines = load_table(rest) + engine_table(rest)
    if cold := rest.get("load.cold_edge"):
        lines.append(f"First load on a new edge: {show(cold['value'], 'ms')} ({cold['note']}).")
    if memory := figures.get("prefill.peak_rss_bytes"):
        peer = f"; {memory['peer']} {memory['peer_value'] / 2**20:.0f} MiB" if memory["peer_value"] else ""
        lines.append(f"Peak memory of the engine in that run: {memory['value'] / 2**20:.0f} MiB{peer}.")
    if rest:
        sections["figures"] = lines + [measured(rest)]
    if not args.readme:
        print("\n\n".join("\n".join(lines) for lines in sections.values()))
        return
    path = pathlib.Path(args.readme)
    readme = path.read_text(encoding="utf-8")
    for name, lines in sections.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, after = readme.split(begin)
        readme = before + begin + "\n" + "\n".join(lines) + "\n" + end + after.split(end)[1]
    path.write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    main()
