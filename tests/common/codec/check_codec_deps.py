#!/usr/bin/env python3
"""Checks that the decoder of common/codec stands without the encoder.

usage: check_codec_deps.py ROOT

Every file of target sparkv_codec_dec, every header that is no enc_* one, and every header they reach,
must include no enc_* header; an enc_* file must not be listed in that target; every file must belong to
exactly one target.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def reached(root: pathlib.Path, start: str) -> set:
    seen, todo = set(), [start]
    while todo:
        path = todo.pop()
        if path in seen or not (root / path).exists():
            continue
        seen.add(path)
        todo += INCLUDE.findall((root / path).read_text(encoding="utf-8"))
    return seen


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    folder = root / "common/codec"
    cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
    targets = {name: re.findall(r"\w+\.cc", sources)
               for name, sources in re.findall(r"sparkv_library\((\w+)\s+SOURCES ([^)]*)DEPS", cmake)}
    bad = []
    for name in targets["sparkv_codec_dec"]:
        if name.startswith("enc_"):
            bad.append(f"sparkv_codec_dec lists {name}")
    # Headers too, whether a file of the decoder includes them by now or not.
    headers = sorted(p.name for p in folder.glob("*.h") if not p.name.startswith("enc_"))
    for name in targets["sparkv_codec_dec"] + headers:
        for path in sorted(reached(root, f"common/codec/{name}")):
            if path.startswith("common/codec/enc_"):
                bad.append(f"{name} reaches {path}")
    for name in targets["sparkv_codec_enc"]:
        if not name.startswith("enc_"):
            bad.append(f"sparkv_codec_enc lists {name}, which is no enc_* file")
    listed = sorted(targets["sparkv_codec_dec"] + targets["sparkv_codec_enc"])
    files = sorted(p.name for p in folder.glob("*.cc"))
    if listed != files:
        bad.append(f"targets list {listed}; the folder has {files}")
    for line in bad:
        print(line)
    print(f"{len(files)} files, {len(bad)} violations")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
