"""Damaged files: values, keys and bytes that somebody might write there by mistake or malice."""

import json
import re

ESCAPES = ["\x1b]0;x\x07", "\x1b[2J", "\u202e", "\x00", "\xff", "\u2028", "é" * 40, "a" * 3000]
NUMBERS = ["0", "-1", "1", "2", "7", "0.5", "-0.0", "1e-320", "1e18", "1e308", "1e999", "nan", "inf", str(2**31 - 1),
           str(2**31), str(2**32), str(2**40), str(2**53), str(2**62), str(2**63 - 1), str(2**63), str(2**64 - 1),
           str(-(2**63)), "1000000", "10000000", "0x7fffffff", "1_000_000_000"]
NUMBER = re.compile(rb"-?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
WORD = re.compile(rb"[A-Za-z_][\w.-]*")


def of_bytes(content, rng):
    at = rng.randrange(len(content) + 1)
    run = content[at:at + rng.randint(1, 8)]
    kind = rng.randrange(6)
    if kind == 0:
        return content[:at] + content[at + len(run):]
    if kind == 1:
        return content[:at] + run + content[at:]
    if kind == 2:
        return content[:at] + bytes([rng.randrange(256)]) + content[at:]
    if kind == 3:
        return content[:at]
    if kind == 4:
        return content[:at] + rng.choice(ESCAPES).encode() + content[at:]
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1:] if run else content


def of_text(content, rng):
    """A number or a word becomes another."""
    pattern, others = rng.choice([(NUMBER, NUMBERS), (NUMBER, NUMBERS), (WORD, ["x", "true", "auto", "a.b", *ESCAPES])])
    found = list(pattern.finditer(content))
    if not found:
        return of_bytes(content, rng)
    match = rng.choice(found)
    return content[:match.start()] + rng.choice(others).encode() + content[match.end():]


def _odd_value(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([None, True, False, [], {}, "", "<1,1,1>", [[]], {"a": {}}])
    if kind == 1:
        return rng.choice(ESCAPES)
    text = rng.choice(NUMBERS[:NUMBERS.index("1000000")])
    return float(text) if text in ("nan", "inf") or "." in text or "e" in text else int(text)


def _places(value, found):
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            _places(value[key], found)
    return found


def of_json(content, rng):
    try:
        value = json.loads(content)
    except ValueError:
        return of_bytes(content, rng)
    places = _places(value, []) if isinstance(value, (dict, list)) else []
    if not places:
        return of_bytes(content, rng)
    parent, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), parent[key])
    elif kind == 1:
        parent[rng.choice(ESCAPES)] = parent.pop(key)
    elif kind == 2:
        other, other_key = rng.choice(places)
        parent[key] = json.loads(json.dumps(other[other_key]))
    else:
        parent[key] = _odd_value(rng)
    return json.dumps(value).encode()


def damaged(path, content, rng):
    """`content`, of the file at `path`, changed in one to three places."""
    kinds = [of_bytes, of_text]
    if path.suffix == ".json":
        kinds += [of_json] * 4
    elif path.suffix in (".toml", ".txt", ".jsonl"):
        kinds += [of_text] * 4
    for _ in range(rng.randint(1, 3)):
        content = rng.choice(kinds)(content, rng)
    return content
