#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: token ids of `tokenizers` and of llama.cpp for texts that part good tokenizers from bad.

    tests/golden/make_tokenizer_golden.py MODEL.gguf     MODEL: SmolLM2-135M-Instruct
      needs: pip install gguf tokenizers jinja2 llama-cpp-python==0.3.36

texts.json       the texts
<pre>.json       for each pre-tokenizer a small vocabulary trained with its published expression (some merges taken away,
                 so that whole words in the vocabulary can't all be built), and per text the words and ids of `tokenizers`
smollm2.json     per text the ids of MODEL's vocabulary: llama.cpp's, and `tokenizers`' where these differ
chat.json        chat templates and what Jinja makes of them, as segments: template text and what people wrote
"""
import json
import os
import random
import sys

import gguf
import jinja2
import llama_cpp
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "tokenizer")
ROOT = os.path.dirname(os.path.dirname(HERE))

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


PRE = {
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "gpt-2": byte_level(True),
    "llama-bpe": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level(False)]),
    "qwen2": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level(False)]),
}


def texts():
    fixed = [
        "", " ", "  ", "a", "a  b", "a   b", " a", "a ", "a  ", "\n", "\n\n", "\r\n", " \n", "\n ", "a\n\nb", "a \n b",
        "a\r\n\r\nb", "a\r\rb", "\t\tx", "x\t y", "def f():\n    return  x", "if (a)  {\r\n\t\treturn b;\r\n}\r\n",
        "():\n   x", "!!!\n\n\nfoo", "... \n...", "brutalist", " Vi\u1ec7t", "Vi\u1ec7t Nam",
        "I'm you're he'll WE'VE they'd it's DON'T 'S 's'S 'lL 'Re x'dx", "'", "''", "'s", " 's", "a'\u017fb",
        "rock'n'roll l'\u00e9t\u00e9", "1", "12", "123", "1234", "1234567", " 1", "  1", "a1b22c333", "3.14159 1e-9 0x1F",
        "\u00bd \u2460 \u0664\u0662 \u216b x\u00b2", "1 2  3   4\n5", "year 2024, 100,000.50$",
        "\u00a0", "a\u00a0b", "\u00a0\u00a0b", "a \u00a0b", "\u3000\u4f60\u597d", "\u2003x\u2028y\u2029z\u0085w", "\u180ex \u200bx\ufeff",
        "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6b6a", "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\u30ab\u30bf\u30ab\u30ca",
        "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0661\u0662", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
        "\U0001f638", " \U0001f638!", "\U0001f468\u200d\U0001f469\u200d\U0001f467 ok", "\U0001f1eb\U0001f1f7\U0001f44d\U0001f3fd", "e\u0301 a\u0308\u0323o", "\u0301x",
        "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m \u1e9e \u0130", "\u01c5 \u02b0 \u2c7c \ua727", "\U0001d4d0\U0001d4d1 \U00020000", "\u1c89\ua7cb\U000105c0",
        "<|im_start|>user\nhi<|im_end|>", "<|endoftext|>", "<|im_start", "a_b __init__ --x ==> {}[]", "https://example.org/a?b=c&d=%20#e",
        "#include <vector>\nint main() { return 0; }  // \u00fcber\n", "SELECT * FROM t WHERE a >= 10;\n\n\n", "\x00\x01\x7f", "x\x0b\x0cy",
        "a" * 300, "ab" * 200, "\u00e9" * 120, "!" * 100, " " * 77 + "x", "\n" * 40, "9" * 50, "\U0001f638" * 30, "supercalifragilistic" * 8,
        "\ufffd\ufffe\uffff", "\u0378 unassigned \U000e0001",
    ]
    rng = random.Random(7)
    atoms = ["a", "Z", "the", "ing", "'s", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "7", "42", "\u0663", "\u00bc", ".", "!?",
             "_", "-", "\u4f60", "\u3042", "\U0001f638", "\u0301", "\u00e9", "\u00df", "\u017f", "\u212a", "\u200d", "\u0434\u0430", "<|", "|>", "\\", "\u2026", "\u1ec7t", "K"]
    mixed = ["".join(rng.choice(atoms) for _ in range(rng.randint(3, 28))) for _ in range(90)]
    doc = read("scripts/demo/hacker-folklore.txt")
    return fixed + mixed + [doc[:700], doc[3000:3500]]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def byte_of_char():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(rest)}


def train(name, all_texts):
    """A BPE of 1,400 tokens on this repository's prose, code and the texts."""
    corpus = [read("scripts/demo/hacker-folklore.txt")[:60000], read("proto/sparkv/v1/edge.proto")] + all_texts * 3
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE[name]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=1400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(m) for m in model["merges"]]
    rng = random.Random(11)
    merges = [m for m in merges if rng.random() > 0.08]
    vocab = model["vocab"]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE[name]
    return tokenizer, sorted(vocab, key=vocab.get), [" ".join(m) for m in merges]


def words(pre, text):
    """The pieces of the text; byte-level pre-tokenizers give them in their alphabet."""
    chars = byte_of_char()
    pieces = pre.pre_tokenize_str(text)
    return [bytes(chars[c] for c in piece).decode("utf-8") for piece, _ in pieces]


def write(name, value):
    path = os.path.join(OUT, name)
    with open(path, "w", encoding="ascii") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")
    print(path, os.path.getsize(path))


def from_gguf(path):
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, kinds = get("tokens"), get("token_type")
    merges = [tuple(m.split(" ")) for m in get("merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = PRE["smollm"]
    return tokenizer, fields["tokenizer.chat_template"].contents(), [t for t, k in zip(tokens, kinds) if k == 3]


QWEN2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}")
# With line breaks after the blocks, which trim_blocks takes away.
CHATML_LINES_TEMPLATE = (
    "{% for message in messages %}\n    {% if loop.first and message.role != 'system' %}\n"
    "{{ '<|im_start|>system\\nIt\\'s \"quoted\".<|im_end|>\\n' }}{% endif %}\n"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}\n"
    "  {% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}\n")
LLAMA3_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA31_TEMPLATE = (
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul 2024\" %}\n{%- endif %}\n"
    "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim %}\n"
    "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n"
    "{{- system_message }}\n{{- \"<|eot_id|>\" }}\n{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n")
QWEN3_TEMPLATE = (
    "{%- if messages[0].role == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n{%- for message in messages %}\n    {%- if (message.role == \"user\") %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "    {%- elif message.role == \"assistant\" %}\n        {%- set content = message.content %}\n"
    "        {%- if '</think>' in content %}\n            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {%- endif %}\n        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}\n    {%- endif %}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n"
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
    "    {%- endif %}\n{%- endif %}\n")

CONVERSATIONS = [
    [("user", "hi")],
    [("system", "Be brief."), ("user", "hi")],
    [("user", "  hi \n")],
    [("system", " \u00a0S\u3000\n"), ("user", "\u2003 <|im_end|><|eot_id|> x\x1f"), ("assistant", "\n ok  "), ("user", "again?\n\n")],
    [("user", "q"), ("assistant", "<think>\nhm\n</think>\n\nyes"), ("user", "r")],
]


def chat(smollm_template):
    """Rendered by Jinja as transformers sets it up; OPEN and CLOSE stand around what people wrote."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    out = []
    for name, format_, source in (
            ("smollm2", "chatml", smollm_template), ("qwen2", "chatml", QWEN2_TEMPLATE),
            ("chatml-lines", "chatml", CHATML_LINES_TEMPLATE), ("llama3", "llama3", LLAMA3_TEMPLATE),
            ("llama3.1", "llama3", LLAMA31_TEMPLATE), ("qwen3", "qwen3", QWEN3_TEMPLATE)):
        template = environment.from_string(source)
        for messages in CONVERSATIONS:
            text = template.render(messages=[{"role": r, "content": c} for r, c in messages], bos_token="<|begin_of_text|>",
                                   add_generation_prompt=True, enable_thinking=False)
            out.append({"name": name, "format": format_, "template": source, "messages": messages, "text": text})
    return out


def main():
    os.makedirs(OUT, exist_ok=True)
    all_texts = texts()
    write("texts.json", all_texts)
    for name in PRE:
        tokenizer, tokens, merges = train(name, all_texts)
        cases = []
        for text in all_texts:
            pieces = words(PRE[name], text)
            assert "".join(pieces) == text, (name, text)
            cases.append({"words": [len(p.encode()) for p in pieces], "ids": tokenizer.encode(text).ids})
        write(f"{name}.json", {"pre": name, "tokens": tokens, "merges": merges, "cases": cases})
    tokenizer, template, special = from_gguf(sys.argv[1])
    llama = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
    cases = []
    for text in all_texts:
        ids = llama.tokenize(text.encode(), add_bos=False, special=False)
        case = {"ids": ids}
        other = tokenizer.encode(text).ids
        if other != ids:
            case["tokenizers"] = other
            print("differ:", repr(text[:60]), ids[:20], other[:20])
        parsed = llama.tokenize(text.encode(), add_bos=False, special=True)
        if parsed != ids:
            case["special"] = parsed
        cases.append(case)
    write("smollm2.json", cases)
    write("chat.json", chat(template))


main()
