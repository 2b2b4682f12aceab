#!/usr/bin/env python3
"""Writes the fixtures beside it, straight from the description of Megatron's indexed format.

Sequence i of both corpora has length LENGTHS[i]; its token j is (7919 * i + 31 * j) % VOCABULARY.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).parent
LENGTHS = [3, 1, 0, 5, 40]


def write(name, code, letter, vocabulary, documents):
    sequences = [[(7919 * i + 31 * j) % vocabulary for j in range(n)] for i, n in enumerate(LENGTHS)]
    data = b"".join(struct.pack(f"<{len(s)}{letter}", *s) for s in sequences)
    (HERE / f"{name}.bin").write_bytes(data)
    width = struct.calcsize(letter)
    pointers = [width * sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(LENGTHS), len(documents))
    index += struct.pack(f"<{len(LENGTHS)}i", *LENGTHS)
    index += struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(documents)}q", *documents)
    (HERE / f"{name}.idx").write_bytes(index)


write("uint16", 8, "H", 65000, [0, 1, 2, 3, 4, 5])
write("int32", 4, "i", 100000, [0, 2, 5])  # sequences grouped into two documents
(HERE / "uint16.mask").write_bytes(bytes(i % 2 for i in range(sum(LENGTHS))))
