#!/usr/bin/env python3
"""Answers encode and decode questions about a Hugging Face tokenizer.json on standard input and output.

Usage: hf_tokenize.py TOKENIZER.json [END_TOKEN]

All integers are little-endian. After start-up and after every question comes a status byte: K, and the
answer; or X, a uint64 size and a message.
  start-up              -> int64 vocabulary, int32 id of the token that ends documents
  E, uint64 count, per text uint64 bytes and UTF-8
                        -> per text uint64 count and int32 ids
  D, uint64 count, per text uint64 count and int32 ids
                        -> per text uint64 bytes and UTF-8
The process ends with its input.
"""

import array
import struct
import sys

END_TOKENS = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]"]

source, sink = sys.stdin.buffer, sys.stdout.buffer


class BadInput(Exception):
    """A message for the user."""


def read_exactly(size):
    data = source.read(size)
    if len(data) != size:
        sys.exit(0)
    return data


def read_size():
    return struct.unpack("<Q", read_exactly(8))[0]


def load(path, end_token):
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BadInput(
            f"{sys.executable} has no package `tokenizers`: install it there or name another Python with --python"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:
        raise BadInput(f"not a Hugging Face tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for token in [end_token] if end_token else END_TOKENS:
        end_id = tokenizer.token_to_id(token)
        if end_id is not None:
            return tokenizer, end_id
    missing = f"no token '{end_token}'" if end_token else "no known token"
    raise BadInput(f"{missing} to end documents with: name one of its tokens with --end-token")


def encode(tokenizer):
    texts = [read_exactly(read_size()).decode("utf-8") for _ in range(read_size())]
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        yield struct.pack("<Q", len(encoding.ids)) + array.array("i", encoding.ids).tobytes()


def decode(tokenizer):
    ids = [array.array("i", read_exactly(4 * read_size())).tolist() for _ in range(read_size())]
    for text in tokenizer.decode_batch(ids, skip_special_tokens=False):
        data = text.encode("utf-8", "replace")
        yield struct.pack("<Q", len(data)) + data


def fail(message):
    data = str(message).encode("utf-8", "replace")
    sink.write(b"X" + struct.pack("<Q", len(data)) + data)
    sink.flush()


def main():
    try:
        tokenizer, end_id = load(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    except BadInput as error:
        fail(error)
        return
    vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    sink.write(b"K" + struct.pack("<qi", vocabulary, end_id))
    sink.flush()
    questions = {b"E": encode, b"D": decode}
    while (question := source.read(1)) in questions:
        try:
            answer = list(questions[question](tokenizer))
        except Exception as error:
            fail(error)
            continue
        sink.write(b"K")
        sink.writelines(answer)
        sink.flush()


if __name__ == "__main__":
    main()
