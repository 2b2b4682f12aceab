"""Whether ids decode to a text, as tools/token_pieces.py tells it without decoding, is what the tokenizer's own decoding says."""

import json
import pathlib
import random
import sys
import unittest

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import token_pieces  # noqa: E402

PIECES = ["plain", " words", " ", "  ", "\n", "\t", "é", "日本", "\U0001f600", "▁", "Ġ", "<e>", "<0x41>", "a\u0301", "\x00", "'s", "ab", "\ufffd"]
FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}


def byte_level():
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE({**letters, "Ġw": 256, "ab": 257}, [("Ġ", "w"), ("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return tokenizer


def fallback(*more, strips=True):
    vocabulary = {**FALLBACK, "▁": 256, "a": 257, "b": 258, "ab": 259, "▁w": 260, "w": 261, "<unk>": 262, "<0xzz>": 263}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("▁", "w")], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    prepend = [normalizers.Prepend("▁")] if strips else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(content=" ", left=1, right=0)] if strips else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip, *more])
    return tokenizer


def metaspace(scheme):
    vocabulary = [(piece, -float(i)) for i, piece in enumerate(["<unk>", "▁", "a", "b", "▁w", "o", "r", "d", "s", "é", "\n", "p", "l", "i", "n"])]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer


def tokenizers():
    one = byte_level()
    one.decoder = decoders.Sequence([decoders.ByteLevel()])
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "plain": 1, "##s": 2, "word": 3}, unk_token="[UNK]"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    bare = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    return {"byte-level": byte_level(), "in a sequence": one, "byte fallback": fallback(), "without Strip": fallback(strips=False),
            "more than joined": fallback(decoders.Replace("w", "W")), "T5": metaspace("always"), "without a blank": metaspace("never"),
            "first": metaspace("first"), "WordPiece": words, "without a decoder": bare}


class TokenPieces(unittest.TestCase):
    def texts(self, draw):
        return ["", " ", *("".join(draw.choices(PIECES, k=draw.randrange(9))) for _ in range(300))]

    def check(self, tokenizer, texts, ids):
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        expected = bytes(text.encode() != other.encode("utf-8", "replace") for text, other in zip(texts, decoded))
        found = token_pieces.TokenPieces(tokenizer).changed([text.encode() for text in texts], ids)
        for text, each, other, right, said in zip(texts, ids, decoded, expected, found):
            self.assertEqual(said, right, (text, each, other))

    def test_as_the_tokenizer_decodes(self):
        draw = random.Random(7)
        for name, tokenizer in tokenizers().items():
            with self.subTest(name):
                tokenizer.add_special_tokens([AddedToken("<e>", special=True), AddedToken("é▁Ġ", special=False)])
                texts = self.texts(draw)
                ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
                self.check(tokenizer, texts, ids)
                size = tokenizer.get_vocab_size()
                odd = [[draw.randrange(size) for _ in range(draw.randrange(6))] for _ in range(500)]
                decoded = tokenizer.decode_batch(odd, skip_special_tokens=False)
                self.check(tokenizer, decoded, odd)
                self.check(tokenizer, decoded, [[size + 5, *each] for each in odd])

    def test_common_ones_are_not_decoded(self):
        class Counted:
            def __init__(self, tokenizer):
                self.tokenizer, self.decoded = tokenizer, 0

            def __getattr__(self, name):
                return getattr(self.tokenizer, name)

            def decode_batch(self, ids, skip_special_tokens):
                self.decoded += len(ids)
                return self.tokenizer.decode_batch(ids, skip_special_tokens=skip_special_tokens)

        texts = ["words ab\nab", "w", "é \U0001f600 ab", " ab"]
        for make in (byte_level, fallback, lambda: fallback(strips=False)):
            counted = Counted(make())
            ids = [encoding.ids for encoding in counted.tokenizer.encode_batch(texts, add_special_tokens=False)]
            self.assertEqual(token_pieces.TokenPieces(counted).changed([text.encode() for text in texts], ids), bytes(4))
            self.assertEqual(counted.decoded, 0, json.loads(counted.tokenizer.to_str())["decoder"])

    def test_ids_are_those_of_batches_with_places(self):
        draw = random.Random(8)
        for name, tokenizer in tokenizers().items():
            tokenizer.add_special_tokens([AddedToken("<e>", special=True)])
            texts = self.texts(draw)
            with_places = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
            without = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            self.assertEqual(with_places, without, name)


if __name__ == "__main__":
    unittest.main()
