#!/usr/bin/env python3
"""Answers encode and decode questions about a Hugging Face tokenizer.json (sluice_channel.py says where).

Usage: hf_tokenize.py TOKENIZER.json BEGIN_TOKEN END_TOKEN THREADS [CHAT_OPTIONS]

BEGIN_TOKEN and END_TOKEN stand around documents: '' leaves them to the tokenizer, 'none' means none, an END_TOKEN 'added' what
the tokenizer's post-processor puts behind a text. THREADS share the
texts of one question (0: one a core). With CHAT_OPTIONS, JSON of chat_template.Options, it answers questions about
conversations, too.

All integers are little-endian.
  start-up              -> int64 vocabulary, int32 id of the token in front of documents and of the one that
                           ends them, -1 where none is known; uint64 count and int32 pairs [begin, end) of ids
                           below the vocabulary that are no tokens; uint64 count and int32 ids of tokens that
                           are one byte of a letter behind its first
  E, uint64 count, per text uint64 bytes and UTF-8
                        -> per text uint64 count and int32 ids
  B, the same           -> a byte each, 1 where the ids decode to another text, else 0; then as for E
  D, uint64 count, per text uint64 count and int32 ids
                        -> per text uint64 bytes and UTF-8
  C or P, uint64 count, per conversation uint64 bytes and JSON
                        -> per conversation (P: what stands in front of an answer to it, of which nothing is learnt) K,
                           uint64 size and JSON of chat_template.Notes, uint64 count, int32 ids and bytes of the mask; or X,
                           or L where something of it would be lost, uint64 size and a message
The process ends with its input.
"""

import array
import json
import os
import pathlib
import re
import struct
import sys

import sluice_channel as channel
from sluice_channel import read_exactly, read_size, refusal

import chat_tokens
import token_pieces

END_TOKENS = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]"]
NO_TOKEN = "none"
ADDED_TOKEN = "added"
# Fewer than these are decoded by one thread: waking others takes longer, and a server's own threads need the cores.
FEW_IDS = 1 << 15
MOST_IDS = 1 << 24
LATER_BYTE = re.compile(r"<0x[89AB][0-9A-F]>")


class BadInput(Exception):
    """A message for the user."""


def why_unreadable(path, version):
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "not a Hugging Face tokenizer: it is not UTF-8: fetch it again"
    except json.JSONDecodeError as error:
        return f"not a Hugging Face tokenizer: it is not JSON at line {error.lineno}, column {error.colno}: fetch it again"
    except (ValueError, RecursionError):
        return "not a Hugging Face tokenizer: its JSON is too deep or has too large numbers: fetch it again"
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        return "not a Hugging Face tokenizer: there is no model in it: name a tokenizer.json"
    return (f"not a Hugging Face tokenizer that version {version} of the package tokenizers reads: save it again by transformers' "
            "save_pretrained, or install a newer version")


def load(path):
    tokenizers = channel.package("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
    except BaseException as error:  # a fault inside of the package is no Exception
        raise BadInput(why_unreadable(path, getattr(tokenizers, "__version__", ""))) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def configuration(path):
    """What tokenizer_config.json beside the tokenizer says; {} where there is none."""
    try:
        found = json.loads((pathlib.Path(path).parent / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"tokenizer_config.json beside it cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def with_chosen(config, begin_token, end_token):
    """The configuration as it stands beside a corpus of these tokens: chat templates may write them."""
    chosen = {"bos_token": begin_token, "eos_token": end_token}
    return config | {key: token for key, token in chosen.items() if token not in ("", NO_TOKEN, ADDED_TOKEN)}


def token_text(config, key):
    token = config.get(key)
    found = token.get("content") if isinstance(token, dict) else token
    if not isinstance(found, (str, type(None))):
        raise BadInput(f"tokenizer_config.json beside it has {json.dumps(token)[:80]} as its {key}: give a token's text")
    return found


def named_id(tokenizer, token, option):
    found = tokenizer.token_to_id(token)
    if found is None:
        raise BadInput(f"no token '{token}': name one of its tokens, or '{NO_TOKEN}', with {option}")
    return found


def begin_id(tokenizer, told, config):
    if told:
        return -1 if told == NO_TOKEN else named_id(tokenizer, told, "--begin-token")
    adds = config.get("add_bos_token")
    if adds is False:
        return -1
    configured = token_text(config, "bos_token")
    if adds and configured:
        return named_id(tokenizer, configured, "--begin-token")
    bare, dressed = bare_and_dressed(tokenizer)
    return dressed[0] if len(dressed) > len(bare) and dressed[:1] != bare[:1] else -1


def bare_and_dressed(tokenizer):
    """A text's ids, and those with what the post-processor puts around it."""
    return (tokenizer.encode_batch(["a"], add_special_tokens=add)[0].ids for add in (False, True))


def added_end_id(tokenizer):
    bare, dressed = bare_and_dressed(tokenizer)
    return dressed[-1] if len(dressed) > len(bare) and dressed[-1:] != bare[-1:] else -1


def end_id(tokenizer, told, config):
    if told == ADDED_TOKEN:
        return added_end_id(tokenizer)
    if told:
        return -1 if told == NO_TOKEN else named_id(tokenizer, told, "--end-token")
    for token in [token_text(config, "eos_token"), *END_TOKENS]:
        found = tokenizer.token_to_id(token) if token else None
        if found is not None:
            return found
    return -1


def read_texts():
    return [read_exactly(read_size()) for _ in range(read_size())]


def ids_of(tokenizer, texts):
    # The same ids, without the places in the text that each is from.
    encode_batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    return [encoding.ids for encoding in encode_batch([text.decode("utf-8") for text in texts], add_special_tokens=False)]


def packed_ids(ids):
    for each in ids:
        yield struct.pack("<Q", len(each)) + array.array("i", each).tobytes()


def encode(tokenizer):
    yield from packed_ids(ids_of(tokenizer, read_texts()))


def encode_checked(tokenizer, pieces):
    texts = read_texts()
    ids = ids_of(tokenizer, texts)
    yield pieces.changed(texts, ids)
    yield from packed_ids(ids)


def decode(tokenizer):
    ids = [array.array("i", read_exactly(4 * read_size())).tolist() for _ in range(read_size())]
    if sum(map(len, ids)) < FEW_IDS:
        texts = [tokenizer.decode(each, skip_special_tokens=False) for each in ids]
    else:
        texts = tokenizer.decode_batch(ids, skip_special_tokens=False)
    for text in texts:
        data = text.encode("utf-8", "replace")
        yield struct.pack("<Q", len(data)) + data


def fail(message):
    channel.tell(refusal(message))


def gaps(ids):
    """What lies between the ids from 0 on, as pairs [begin, end)."""
    pairs, end = [], 0
    for each in sorted(set(ids)):
        if each > end:
            pairs += [end, each]
        end = each + 1
    return pairs


def tell_about(tokenizer, ends):
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    between = gaps(vocabulary.values())
    later = sorted(i for token, i in vocabulary.items() if LATER_BYTE.fullmatch(token))
    size = max(vocabulary.values(), default=-1) + 1
    if size >= MOST_IDS:
        token = max(vocabulary, key=vocabulary.get)
        raise BadInput(f"token '{token}' has the id {size - 1}: ids below {MOST_IDS} are read; fetch it again, or mend it")
    channel.tell(b"K", struct.pack("<qii", size, *ends),
                 struct.pack("<Q", len(between) // 2), array.array("i", between).tobytes(),
                 struct.pack("<Q", len(later)), array.array("i", later).tobytes())


def main():
    path, begin_token, end_token, threads, *told = sys.argv[1:]
    if threads != "0":
        os.environ["RAYON_NUM_THREADS"] = threads
    try:
        if told:
            channel.package("jinja2")
        tokenizer = load(path)
        config = with_chosen(configuration(path), begin_token, end_token)
        ends = begin_id(tokenizer, begin_token, config), end_id(tokenizer, end_token, config)
        chats = chat_tokens.ChatTokens(tokenizer, path, config, told[0], ends[1]) if told else None
        tell_about(tokenizer, ends)
    except channel.Lacking as error:
        return channel.tell_lacking(error)
    except BadInput as error:
        return fail(f"{path}: {error}")
    except chat_tokens.ChatError as error:
        return fail(error)
    pieces = token_pieces.TokenPieces(tokenizer)
    questions = {b"E": encode, b"B": lambda _: encode_checked(tokenizer, pieces), b"D": decode}
    if chats is not None:
        questions[b"C"] = lambda _: chats.chats(read_texts())
        questions[b"P"] = lambda _: chats.prompts(read_texts())
    while (question := channel.source.read(1)) in questions:
        try:
            answer = list(questions[question](tokenizer))
        except SystemExit:
            raise
        except BaseException as error:  # a fault inside of the package is no Exception
            fail(f"{path}: the package tokenizers cannot do it with this tokenizer: {channel.one_line(error)}: save it again by "
                 "transformers' save_pretrained, or install another version")
            continue
        channel.tell(b"K", *answer)


if __name__ == "__main__":
    channel.run(main)
