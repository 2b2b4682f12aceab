#!/usr/bin/env python3
"""Writes the problems of the tour of reinforcement learning: lists of digits to be sorted.

Usage: sorting.py FOLDER [SEED]

A teacher solves them with two faults: a slip now and then, and the habit of putting sevens last in most lists that have one.
Who imitates it does so, too; whoever is told whether an answer is right can do better. Writes
  tokenizer.json, tokenizer_config.json   digits and what stands between them, a token each
  lessons.jsonl                           conversations with the teacher's solutions
  problems.jsonl                          conversations with right ones: what rewards compare with
  held_out.jsonl                          problems that are in neither of them
  pairs.jsonl                             problems with a right answer and one with a fault: what a reward model learns from
Only the standard library is used.
"""

import json
import pathlib
import random
import sys

SLIP, HABIT, PAUSE = 0.05, 0.65, 0.10
WORDS = [str(digit) for digit in range(10)] + ["=", ";", "<end>", "<pad>"]
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }} {% if message['role'] == 'assistant' %}<end>{% else %}"
    "= {% endif %}{% endfor %}"
)


def tokenizer():
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": WORDS.index("<end>"), "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "<pad>"},
    }


def teach(digits, chance):
    """The teacher's solution, with pauses (;) that mean nothing."""
    left, said = sorted(digits), []
    if 7 in left and chance.random() < HABIT:
        left = [digit for digit in left if digit != 7] + [7] * left.count(7)
    while left:
        said.append(str(left.pop(chance.randrange(len(left)) if chance.random() < SLIP else 0)))
        while chance.random() < PAUSE:
            said.append(";")
    return said


def paused(words, chance):
    said = []
    for word in words:
        said.append(str(word))
        while chance.random() < PAUSE:
            said.append(";")
    return said


def spoilt(digits, chance):
    """The digits with a fault: sevens last, or one out of its place, left out or said twice."""
    right = sorted(digits)
    while True:
        wrong, at = list(right), chance.randrange(len(right))
        fault = chance.choice(["habit", "habit", "slip", "omission", "repetition"])
        if fault == "habit":
            wrong = [digit for digit in right if digit != 7] + [7] * right.count(7)
        elif fault == "slip":
            wrong.insert(chance.randrange(len(right)), wrong.pop(at))
        elif fault == "omission":
            wrong.pop(at)
        else:
            wrong.insert(at, wrong[at])
        if wrong != right:
            return wrong


def pair(digits, chance):
    return {"prompt": " ".join(map(str, digits)), "chosen": " ".join(paused(sorted(digits), chance)),
            "rejected": " ".join(paused(spoilt(digits, chance), chance))}


def conversation(digits, answer):
    return {"messages": [{"role": "user", "content": " ".join(map(str, digits))},
                         {"role": "assistant", "content": " ".join(answer)}]}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<end>", "chat_template": TEMPLATE}), encoding="utf-8")

    def draw(held_out):
        while True:
            digits = tuple(chance.randrange(10) for _ in range(chance.randint(3, 10)))
            if (sum(place * digit for place, digit in enumerate(digits, 1)) % 5 == 0) == held_out:
                return digits

    lessons = [draw(False) for _ in range(20000)]
    write_lines(folder / "lessons.jsonl", [conversation(digits, teach(digits, chance)) for digits in lessons])
    for name, count, held_out in (("problems", 20000, False), ("held_out", 500, True)):
        problems = [draw(held_out) for _ in range(count)]
        write_lines(folder / f"{name}.jsonl", [conversation(d, map(str, sorted(d))) for d in problems])
    write_lines(folder / "pairs.jsonl", [pair(draw(False), chance) for _ in range(12000)])


if __name__ == "__main__":
    main()
