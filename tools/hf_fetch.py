#!/usr/bin/env python3
"""Fetches a model of the Hugging Face hub into the hub's cache (sluice_channel.py says how answers travel).

Usage: hf_fetch.py NAME REVISION CACHE configuration|tokenizer|model

  start-up -> K
  one question, without content
           -> K, uint64 size and the folder of the snapshot; or X, uint64 size and why it could not be fetched
The progress goes to standard error.
"""

import sys

import sluice_channel as channel

CONFIGURATION = ["config.json", "generation_config.json"]
TOKENIZER = [*CONFIGURATION, "tokenizer*", "*.tiktoken", "*.jinja", "additional_chat_templates/*", "added_tokens.json",
             "special_tokens_map.json", "vocab*", "merges.txt", "*.model"]
WANTED = {"configuration": CONFIGURATION, "tokenizer": TOKENIZER, "model": None}
# Weights in other formats than safetensors are large, and nothing here reads them.
UNREAD = ["*.bin", "*.pt", "*.pth", "*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*", "onnx/*", "consolidated*"]


def fetched(name, revision, cache, wanted):
    hub = channel.package("huggingface_hub")
    try:
        return hub.snapshot_download(name, revision=revision or None, cache_dir=cache, allow_patterns=WANTED[wanted],
                                     ignore_patterns=UNREAD)
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {channel.one_line(error)}") from error


def main():
    name, revision, cache, wanted = sys.argv[1:]
    try:
        channel.package("huggingface_hub")
    except channel.Lacking as error:
        channel.tell_lacking(error)
        return
    channel.tell(b"K")
    channel.read_exactly(1)
    try:
        channel.tell(b"K", channel.packed(fetched(name, revision, cache, wanted)))
    except ValueError as error:
        channel.tell(channel.refusal(error))


if __name__ == "__main__":
    main()
