#!/usr/bin/env python3
"""Damaged bodies of requests, sent to `sluice serve`: each is answered, or refused with a reason that has words in it, and the server
that has answered all of them still says what it said first.

    tests/fuzz/bodies.py --count 1000 [--seed 1]
"""

import argparse
import json
import os
import pathlib
import random
import sys
import tempfile

import damage

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

from commands import HANG_S  # noqa: E402
from serve_bounds_test import endless_model  # noqa: E402
from serve_test import Server  # noqa: E402

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
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    answered = faults = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server("--model", endless_model(pathlib.Path(folder) / "model"), "--context-length", CONTEXT)
        def ask(path, body):
            return server.call("POST", path, body, {"Content-Type": "application/json"}, timeout=HANG_S)
        greedy = json.dumps({"prompt": "abc", "max_tokens": 4, "temperature": 0}).encode()
        try:
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
        finally:
            server.close()
    print(f"{args.count} bodies, {answered} answered, the others refused; {faults} faults")
    sys.exit(1 if faults or not args.count // 20 <= answered < args.count else 0)


if __name__ == "__main__":
    os.environ.setdefault("SLUICE", "build/sluice")
    main()
