#!/usr/bin/env python3
"""Runs `systemd-analyze verify` on the unit files, with ExecStart pointing at a program that exists.

usage: verify_units.py FOLDER      exit 77 (skipped) where systemd-analyze is not installed
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def main() -> int:
    if shutil.which("systemd-analyze") is None:
        print("systemd-analyze is not installed")
        return 77
    units = sorted(pathlib.Path(sys.argv[1]).glob("*.service"))
    if len(units) != 2:
        print(f"expected two unit files, got {[u.name for u in units]}")
        return 1
    code = 0
    with tempfile.TemporaryDirectory() as tmp:
        for unit in units:
            text = unit.read_text(encoding="utf-8")
            if not re.search(r"^ExecStart=/usr/local/bin/" + unit.stem + r" --config /etc/sparkv/\w+\.toml$", text, re.M):
                print(f"{unit.name}: ExecStart does not start {unit.stem} with its config")
                code = 1
            copy = pathlib.Path(tmp) / unit.name
            copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M), encoding="utf-8")
            run = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
            # Complaints about other units of the machine are not ours.
            ours = [line for line in (run.stdout + run.stderr).splitlines() if unit.name in line]
            if ours:
                print("\n".join(ours))
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
