#!/usr/bin/env python3
"""Trains a tokenizer that can chat (sluice_channel.py says where it is asked).

Usage: train_tokenizer.py FOLDER VOCABULARY END_TOKEN CHAT_OPTIONS CHATS

FOLDER gets tokenizer.json (byte-level BPE, which loses nothing), tokenizer_config.json and chat_template.jinja, as
transformers reads them. The template is that of CHAT_OPTIONS, JSON of chat_template.Options: a file, or `chatml`, which is
the default. The control tokens that the template writes are tokens of the vocabulary. END_TOKEN ends documents and answers;
'': the token that the template writes behind an answer. CHATS is `chats` where texts are conversations as JSON, else `texts`.

All integers are little-endian.
  start-up              -> K
  T, uint64 count, per text uint64 bytes and UTF-8
                        -> K; the texts are trained on
  F                     -> K; the folder is written
The process ends with its input. Equal texts in equal order give equal files on every machine.
"""

import json
import pathlib
import re
import sys

import sluice_channel as channel

import chat_template
import control_tokens
from chat_template import ChatError

BYTES = 256


class Trainer:
    def __init__(self, folder, vocabulary, told_end, options, chats):
        self._tokenizers = channel.package("tokenizers")
        channel.package("jinja2")
        self._folder, self._vocabulary = pathlib.Path(folder), vocabulary
        self._name, self._text = control_tokens.template_source(options.template)
        self._control = control_tokens.ControlTokens(self._name, self._text, told_end)
        self._least = BYTES + len(self._control.all) + 1
        if vocabulary < self._least:
            raise ChatError(advice(vocabulary, f"bytes and control tokens of the template are {self._least - 1}", self._least))
        self._options = options
        self._chats = chats
        self._rendering = None
        self._parts = []

    def add(self, data):
        text = self._rendered(data) if self._chats else data.decode("utf-8")
        # Control tokens are in the vocabulary as they are: no merge is learnt of their letters.
        self._parts += filter(None, re.split("|".join(map(re.escape, self._control.all)), text))

    def _rendered(self, data):
        """The text of a conversation; "" where it is none, which the build says later."""
        if self._rendering is None:
            self._write_settings()
            self._options.template = ""
            added = [(token, True) for token in self._control.all]
            self._rendering = chat_template.ChatTemplate(
                self._folder / "tokenizer.json", self._control.config(), self._options, added, [self._control.end])
        try:
            return self._rendering.render(json.loads(data)).plain_text()
        except (ChatError, ValueError, RecursionError):
            return ""

    def _write_settings(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "chat_template.jinja").write_text(self._text, encoding="utf-8")
        config = json.dumps(self._control.config(), indent=2, ensure_ascii=False) + "\n"
        (self._folder / "tokenizer_config.json").write_text(config, encoding="utf-8")

    def finish(self):
        from tokenizers import decoders, models, pre_tokenizers, trainers

        if not self._parts:
            what = "conversation that the template renders" if self._chats else "text"
            raise ChatError(f"there is no {what} to train a tokenizer from: check the inputs")
        tokenizer = self._tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(self._parts, trainers.BpeTrainer(
            vocab_size=self._vocabulary, special_tokens=self._control.all, show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
        found = tokenizer.get_vocab_size()
        if found < self._vocabulary:
            raise ChatError(advice(self._vocabulary, f"the text gives at most {found}", self._least, found))
        self._write_settings()
        tokenizer.save(str(self._folder / "tokenizer.json"))


def advice(vocabulary, why, least, most=None):
    """As vocabulary_advice of src/corpus/sentencepiece_tokenizer.cpp says it."""
    if most is None:
        cure = f"--train-tokenizer {least} or more"
    else:
        cure = f"--train-tokenizer {least} to {most}, or more text" if least <= most else "more text"
    return f"cannot train a tokenizer of {vocabulary} pieces: {why}: give {cure}"


def main():
    folder, vocabulary, end, options, chats = sys.argv[1:]
    try:
        trainer = Trainer(folder, int(vocabulary), end, chat_template.Options(**json.loads(options)), chats == "chats")
    except channel.Lacking as error:
        return channel.tell_lacking(error)
    except ChatError as error:
        return channel.tell(channel.refusal(error))
    channel.tell(b"K")
    while (question := channel.source.read(1)) in (b"T", b"F"):
        try:
            if question == b"T":
                for _ in range(channel.read_size()):
                    trainer.add(channel.read_exactly(channel.read_size()))
            else:
                trainer.finish()
        except ChatError as error:
            channel.tell(channel.refusal(error))
            continue
        except OSError as error:
            channel.tell(channel.refusal(f"{folder}: the tokenizer cannot be written: {error}"))
            continue
        channel.tell(b"K")


if __name__ == "__main__":
    channel.run(main)
