"""What the tests of conversations share: a tokenizer of bytes, and conversations by a template."""

import array
import json
import pathlib
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import chat_template  # noqa: E402
import chat_tokens  # noqa: E402

MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>", "</think>",
         "<tool_call>", "</tool_call>", "<s>")  # fmt: skip


def user(content, **more):
    return {"role": "user", "content": content, **more}


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


def byte_tokenizer(merges=()):
    """A token a byte, what `merges` make of them, and the marks."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    alphabet |= {left + right: len(alphabet) + i for i, (left, right) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(alphabet, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=not mark.startswith(("<t", "</t"))) for mark in MARKS])
    return tokenizer


class ChatTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tokenizer = byte_tokenizer()

    def chats(self, templates, config=None, **options):
        """The ChatTokens of this template, or of a list of named ones."""
        config = {"chat_template": templates, "eos_token": "<|im_end|>", "bos_token": "<s>"} | (config or {})
        end = self.tokenizer.token_to_id(config["eos_token"])
        return chat_tokens.ChatTokens(self.tokenizer, self.folder / "tokenizer.json", config, json.dumps(options), end)

    def answer(self, chats, chat, prompt=False):
        """(notes, ids, mask) of a conversation, or (kind, message) of a refusal."""
        chat = {"messages": chat} if isinstance(chat, list) else chat
        (data,) = (chats.prompts if prompt else chats.chats)([json.dumps(chat).encode()])
        if data[:1] != b"K":
            return data[:1].decode(), data[9:].decode()
        (size,) = struct.unpack("<Q", data[1:9])
        notes, data = json.loads(data[9 : 9 + size]), data[9 + size :]
        (count,) = struct.unpack("<Q", data[:8])
        return notes, array.array("i", data[8 : 8 + 4 * count]).tolist(), data[8 + 4 * count :]

    def text(self, chats, chat, prompt=False):
        notes, ids, _ = self.answer(chats, chat, prompt)
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def learnt(self, chats, chat):
        """The texts of what is learnt, one for each run of tokens."""
        notes, ids, mask = self.answer(chats, chat)
        runs, before = [], 0
        for id, counts in zip(ids, mask, strict=True):
            if counts and not before:
                runs.append([])
            if counts:
                runs[-1].append(id)
            before = counts
        return [self.tokenizer.decode(run, skip_special_tokens=False) for run in runs]

    def refused(self, chats, chat, kind="X", prompt=False):
        found = self.answer(chats, chat, prompt)
        self.assertEqual(found[0], kind, found)
        return found[1]
