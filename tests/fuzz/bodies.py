#!/usr/bin/env python3
"""Damaged bodies of requests, sent to `sluice serve`: each is answered, or refused with a reason that has words in it, and the server
that has answered all of them still says what it said first.

    tests/fuzz/bodies.py --count 1000 [--seed 1]
"""

import json
import pathlib
import random
import sys

import damage
import endless
from commands import HANG_S

CONTEXT = 256  # tokens, which end what an endless model says
PLAIN = {"prompt": ["abc", "de"], "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "n": 2,
         "logprobs": 2, "echo": True, "stop": ["yz"], "stream": False, "presence_penalty": 0.1, "frequency_penalty": 0.1,
         "logit_bias": {"65": 1.5}}
CHAT = {"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "go"}]}],
        "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2, "stop": "z", "stream": False,
        "response_format": {"type": "text"}}
STREAMED = {"messages": CHAT["messages"], "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
SOUND = [("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT), ("/v1/chat/completions", STREAMED)]
NAME = pathlib.Path("body.json")  # by which bodies are damaged as JSON


def fault_of(status, content):
    if status == 200:
        return None
    if not 400 <= status < 500:
        return f"status {status}: {content[:200]!r}"
    try:
        said = json.loads(content)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without a reason: {content[:200]!r}"
    if len(said) < 8 or "json.exception" in said or "internal error" in said:
        return f"status {status} for {said!r}"
    return None


def main():
    args = endless.parser(1000).parse_args()
    answered = faults = 0
    with endless.server("--context-length", CONTEXT) as server:
        def ask(path, body):
            return server.call("POST", path, body, {"Content-Type": "application/json"}, timeout=HANG_S)
        greedy = json.dumps({"prompt": "abc", "max_tokens": 4, "temperature": 0}).encode()
        for path, sound in SOUND:
            assert ask(path, json.dumps(sound).encode())[0] == 200, sound
        first = json.loads(ask("/v1/completions", greedy)[1])["choices"]
        for seed in range(args.seed, args.seed + args.count):
            rng = random.Random(seed)
            path, sound = rng.choice(SOUND)
            body = damage.damaged(NAME, json.dumps(sound).encode(), rng)
            try:
                status, content = ask(path, body)
                answered += status == 200
                fault = fault_of(status, content)
            except (OSError, ValueError) as error:
                fault = repr(error)
            if fault:
                faults += 1
                print(f"seed {seed}: {path}: {fault}: {body!r}", flush=True)
        if json.loads(ask("/v1/completions", greedy)[1])["choices"] != first:
            faults += 1
            print("the server says something else at the end")
    print(f"{args.count} bodies, {answered} answered, the others refused; {faults} faults")
    sys.exit(1 if faults or not args.count // 20 <= answered < args.count else 0)


if __name__ == "__main__":
    main()
