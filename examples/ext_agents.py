#!/usr/bin/env python3
"""Asks a question of texts that are longer than a model's context, through any server with OpenAI's chat endpoint, such as
`sluice serve`: seekers read a part each, side by side, and note facts with a score; what all have found is ranked and shown
to each of them, who look again with it, until nothing is new or the rounds are over; a reducer then answers from the best
fact, the best two, four, eight and so on, until it can. After ExtAgents (Liu et al., 2025), whose agents are models of their own
prompts alike.

    sluice serve models/mine --port 8000
    python3 examples/ext_agents.py --question "Who built the lighthouse?" report.txt letters.txt

The answer is printed, and where it comes from; --trace keeps every request as a line of JSON: many prompts of a few
thousand tokens that share their beginnings and a few that grow, a load for whoever schedules them. Python's standard library only.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import sys
import threading
import time
import urllib.error
import urllib.request

SEEKER = """You read one part of a longer text. Another will answer a question from what you and the readers of the other parts note. \
Note facts from your part that help to answer it, a line each: a score from 0 to 10 for how much it helps, a colon, the fact \
in one sentence. Facts that others have noted may tell you what to look for. Write NONE if your part has nothing that helps."""
REDUCER = """Answer the question from the facts alone, in a sentence. Write UNKNOWN if they do not suffice."""
NOTED = re.compile(r"^\W*(\d+(?:\.\d+)?)\s*[:)]\s*(\S.*)$", re.MULTILINE)


class ServerError(Exception):
    """What the server said instead of an answer, with the way out."""


@dataclasses.dataclass(frozen=True)
class Fact:
    score: float
    text: str
    part: int  # that it was found in, counted from 0

    def key(self):
        return re.sub(r"\W+", " ", self.text).strip().lower()


class Client:
    """A chat endpoint. Thread-safe."""

    def __init__(self, server, model, key="", most_tokens=256, patience_s=600, trace=None):
        self.url = server.rstrip("/") + "/v1/chat/completions"
        self.model, self.key, self.most_tokens, self.patience_s, self.trace = model, key, most_tokens, patience_s, trace
        self.requests = self.tokens = 0
        self.told = threading.Lock()  # guards those and the trace

    def ask(self, who, system, user):
        """The reply to one prompt; refusals for want of room are waited out."""
        body = {"model": self.model, "max_tokens": self.most_tokens, "temperature": 0,
                "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        begin = time.monotonic()
        answer = self.post(json.dumps(body).encode(), headers, begin + self.patience_s)
        reply = answer["choices"][0]["message"]["content"] or ""
        line = {"who": who, "messages": body["messages"], "reply": reply, "usage": answer.get("usage"),
                "seconds": round(time.monotonic() - begin, 3)}
        with self.told:
            self.requests += 1
            self.tokens += answer.get("usage", {}).get("total_tokens", 0)
            if self.trace is not None:
                self.trace.write(json.dumps(line, ensure_ascii=False) + "\n")
        return reply

    def post(self, data, headers, deadline):
        pause_s = 0.2
        while True:
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, data, headers), timeout=self.patience_s) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")[:300]
                if error.code not in (429, 503) or time.monotonic() > deadline:
                    raise ServerError(f"{self.url} answers {error.code}: {said}") from error
            except OSError as error:
                raise ServerError(f"{self.url} does not answer ({error}): start `sluice serve`, or name another --server") from error
            time.sleep(pause_s)
            pause_s = min(5, 2 * pause_s)


def parts_of(texts, size):
    """Parts of at most `size` characters, cut between paragraphs, lines or words where there are some."""
    parts = []
    for text in texts:
        while text.strip():
            cut = len(text)
            if cut > size:
                cut = max((text.rfind(mark, size // 2, size) + len(mark) for mark in ("\n\n", "\n", " ") if
                           text.rfind(mark, size // 2, size) > 0), default=size)
            parts.append(text[:cut].strip())
            text = text[cut:]
    return [part for part in parts if part]


def ranked(facts):
    """The best first, each once: by score, then the part where it stands."""
    best = {}
    for fact in facts:
        known = best.get(fact.key())
        if known is None or fact.score > known.score:
            best[fact.key()] = fact
    return sorted(best.values(), key=lambda fact: (-fact.score, fact.part, fact.text))


def listed(facts):
    return "\n".join(f"- {fact.text}" for fact in facts)


def seek(client, question, parts, rounds, shown, pool):
    """What all seekers have found, ranked, and how many rounds that took."""
    facts = []
    for number in range(1, rounds + 1):
        def look(index, known=facts[:shown]):
            # The part comes first: what a seeker's prompts share from round to round need not be read again.
            prompt = f"Text, part {index + 1} of {len(parts)}:\n{parts[index]}\n\nQuestion: {question}"
            if known:
                prompt += f"\n\nFacts that have been noted:\n{listed(known)}"
            reply = client.ask(f"seeker {index + 1}, round {number}", SEEKER, prompt)
            return [Fact(min(10.0, float(score)), text.strip(), index) for score, text in NOTED.findall(reply)]

        found = [fact for of_part in pool.map(look, range(len(parts))) for fact in of_part]
        before = {fact.key() for fact in facts[:shown]}
        facts = ranked(facts + [fact for fact in found if fact.score > 0])
        if {fact.key() for fact in facts[:shown]} == before:
            return facts, number
    return facts, rounds


def reduce(client, question, facts):
    """(the answer, how many facts it took); nothing where all are not enough."""
    count = 1
    while facts:
        prompt = f"Facts:\n{listed(facts[:count])}\n\nQuestion: {question}"
        reply = client.ask(f"reducer, {min(count, len(facts))} facts", REDUCER, prompt).strip()
        if reply and "UNKNOWN" not in reply:
            return reply, min(count, len(facts))
        if count >= len(facts):
            break
        count *= 2
    return None, len(facts)


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no count: give 1 or more")
    return int(text)


def main():
    arguments = argparse.ArgumentParser(description="Ask a question of texts longer than a model's context.")
    arguments.add_argument("texts", nargs="+", type=pathlib.Path)
    arguments.add_argument("--question", required=True)
    arguments.add_argument("--server", default="http://127.0.0.1:8000")
    arguments.add_argument("--model", default="", help="as /v1/models names it; a server of one model needs none")
    arguments.add_argument("--key", default=os.environ.get("SLUICE_API_KEY", ""))
    arguments.add_argument("--part", type=positive, default=16_000, help="characters of a part at most")
    arguments.add_argument("--rounds", type=positive, default=5, help="of seeking at most")
    arguments.add_argument("--facts", type=positive, default=16, help="the best facts that seekers are shown")
    arguments.add_argument("--tokens", type=positive, default=256, help="of a reply at most")
    arguments.add_argument("--at-once", type=positive, default=16, help="requests under way")
    arguments.add_argument("--trace", type=argparse.FileType("w"), help="a file that each request is written to")
    options = arguments.parse_args()
    try:
        texts = [path.read_text(errors="replace") for path in options.texts]
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    parts = parts_of(texts, options.part)
    if not parts:
        sys.exit("the texts are empty: there is nothing to look for")
    client = Client(options.server, options.model, options.key, options.tokens, trace=options.trace)
    try:
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            facts, rounds = seek(client, options.question, parts, options.rounds, options.facts, pool)
        answer, used = reduce(client, options.question, facts)
    except ServerError as error:
        sys.exit(str(error))
    print(answer or f"No answer: {len(facts)} facts from {len(parts)} parts do not suffice.")
    for fact in facts[:used] if answer else facts[:options.facts]:
        print(f"  {fact.score:g}  part {fact.part + 1}: {fact.text}")
    print(f"{len(parts)} parts, {rounds} rounds, {client.requests} requests, {client.tokens} tokens", file=sys.stderr)
    return 0 if answer else 3


if __name__ == "__main__":
    sys.exit(main())
