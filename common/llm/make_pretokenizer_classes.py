#!/usr/bin/env python3
"""Writes pretokenizer_classes.cc: the letters and numbers of the published pre-tokenizer expressions.

They are asked of the `tokenizers` package (its own Unicode tables, version 16), so that our words are cut where the
reference cuts them. Run: python3 make_pretokenizer_classes.py > pretokenizer_classes.cc
"""
from tokenizers import Regex, pre_tokenizers


def matched(expression):
    code_points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    split = pre_tokenizers.Split(Regex(expression), "removed")
    rest = set()
    for piece, _ in split.pre_tokenize_str("".join(map(chr, code_points))):
        rest.update(map(ord, piece))
    return [c for c in code_points if c not in rest]


def ranges(code_points):
    out = []
    for c in code_points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, expression):
    print(f"\nconstexpr Range {name}[] = {{")
    line = "   "
    for first, last in ranges(matched(expression)):
        cell = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(cell) > 99:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};")


HEAD = """// Made by make_pretokenizer_classes.py; do not edit.
#include "common/llm/pretokenizer_classes.h"

#include <cstring>

namespace sparkv {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};"""

TAIL = """
}  // namespace

const CharClasses& CharClasses::Get() {
  static const CharClasses* const classes = new CharClasses;
  return *classes;
}

CharClasses::CharClasses() {
  for (const Range& range : kLetters) Fill(range.first, range.last, CharClass::kLetter);
  for (const Range& range : kNumbers) Fill(range.first, range.last, CharClass::kNumber);
  for (const Range& range : kSpaces) Fill(range.first, range.last, CharClass::kSpace);
}

void CharClasses::Fill(uint32_t first, uint32_t last, CharClass value) {
  std::memset(of_ + first, static_cast<int>(value), last - first + 1);
}

}  // namespace sparkv"""

print(HEAD)
table("kLetters", r"\p{L}")
table("kNumbers", r"\p{N}")
table("kSpaces", r"\s")
print(TAIL)
