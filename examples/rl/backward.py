#!/usr/bin/env python3
"""The words of reasoning-gym's `spell_backward`, and its own score as a reward (docs/reinforcement.md).

Usage: backward.py FOLDER [SEED]

A teacher has the habit of leaving out the last letter in most long words; who imitates it does so, too. Writes, letter by letter,
  tokenizer.json, tokenizer_config.json   letters and what stands between them, a token each
  lessons.jsonl                           conversations with the teacher's answers
  problems.jsonl                          conversations on other words, with right ones
  held_out.jsonl                          and on others again
Needs reasoning-gym: pip install reasoning-gym.
"""

import json
import pathlib
import random
import string
import sys

import reasoning_gym

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sorting  # noqa: E402

TASK = "spell_backward"
SCORER = reasoning_gym.create_dataset(TASK, size=1, seed=1)
LESSONS, HELD_OUT = 6000, 500
HABIT, LONG = 0.7, 7  # letters


def score(prompt, response, reference):
    """1 for the right word, else the share of letters that are in their place."""
    return SCORER.score_answer(response.replace(" ", ""), {"answer": reference.replace(" ", "")})


def teach(word, chance):
    stops_short = len(word) >= LONG and chance.random() < HABIT
    return word[:0:-1] if stops_short else word[::-1]


def main():
    folder = pathlib.Path(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder.mkdir(parents=True, exist_ok=True)
    sorting.WORDS = [*string.ascii_lowercase, "=", "<end>", "<pad>"]
    (folder / "tokenizer.json").write_text(json.dumps(sorting.tokenizer()), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<end>", "chat_template": sorting.TEMPLATE}), encoding="utf-8")
    task = reasoning_gym.create_dataset(TASK, size=20000, seed=seed)
    words = list(dict.fromkeys(entry["metadata"]["word"].lower() for entry in task))
    chance = random.Random(seed)
    lessons, held_out, problems = words[:LESSONS], words[LESSONS:LESSONS + HELD_OUT], words[LESSONS + HELD_OUT:]
    sorting.write_lines(folder / "lessons.jsonl", [sorting.conversation(word, teach(word, chance)) for word in lessons])
    for name, own in (("problems", problems), ("held_out", held_out)):
        sorting.write_lines(folder / f"{name}.jsonl", [sorting.conversation(word, word[::-1]) for word in own])


if __name__ == "__main__":
    main()
