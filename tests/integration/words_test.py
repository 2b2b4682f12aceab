"""Words with labels, as data sets of CoNLL's kind have them, become tokens with labels: beside transformers' alignment, with
tokenizers of all kinds, and through training."""

import json
import struct
import unittest

from harness import PEFT_PYTHON, TestCase, environment, losses, main, missing
from heads_oracle import Oracle
from sft_test import write_tokenizer

SENTENCES = [["EU", "rejects", "German", "call", "to", "boycott", "British", "lamb", "."], ["Peter", "Blackburn"],
             ["café", "naïve", "🙂👍🏽", "日本語", "x"], ["unbelievably", "long", "Donaudampfschifffahrt", "words"], ["."]]
DOCUMENTS = [(words, [(3 * i + len(word)) % 4 for i, word in enumerate(words)]) for words in SENTENCES]


def read_corpus(prefix):
    """The documents of a corpus and their labels."""
    raw = prefix.with_suffix(".idx").read_bytes()
    count = struct.unpack_from("<Q", raw, 18)[0]
    code = raw[17]
    lengths = struct.unpack_from(f"<{count}i", raw, 34)
    width = "H" if code == 8 else "i"
    tokens = prefix.with_suffix(".bin").read_bytes()
    ids = struct.unpack(f"<{len(tokens) // struct.calcsize(width)}{width}", tokens)
    documents, begin = [], 0
    for length in lengths:
        documents.append(list(ids[begin:begin + length]))
        begin += length
    labels = [json.loads(line) for line in prefix.with_suffix(".labels").read_text().splitlines()]
    return documents, labels


class Words(TestCase):
    elastic = False

    def write(self, documents, name="words.jsonl", text_key="tokens", label_key="ner_tags"):
        lines = [json.dumps({"id": str(i), text_key: words, label_key: labels}) for i, (words, labels) in enumerate(documents)]
        (self.directory / name).write_text("\n".join(lines) + "\n")

    def build(self, tokenizer, *more, source="words.jsonl", out="built", expect=0):
        return self.sluice("corpus", "build", source, "--labels", "--tokenizer", tokenizer, "--out", out, "--json", *more, expect=expect)

    def test_labels_are_aligned_as_transformers_examples_do(self):
        if missing(PEFT_PYTHON):
            raise unittest.SkipTest("transformers is not set up: make parity")
        oracle = Oracle(PEFT_PYTHON, environment(HF_HUB_OFFLINE="1"))
        self.addCleanup(oracle.close)
        kinds = oracle.make_tokenizers(self.directory / "tokenizers", [" ".join(words) for words in SENTENCES])
        self.assertEqual(kinds, ["wordpiece", "bytes_with_blanks", "bytes", "llama"])
        # A word that gives no token to some kinds, with its label.
        documents = [*DOCUMENTS, (["a", "\u200d\u00ad", "", "b"], [1, 2, 3, 0])]
        self.write(documents)
        for kind in kinds:
            folder = self.directory / "tokenizers" / kind
            self.build(folder, out=kind)
            found = read_corpus(self.directory / kind / "corpus")
            with self.subTest(kind):
                if kind == "bytes":  # transformers refuses to split words there: as the text with blanks between words
                    self.assertEqual(found[0][:-1], oracle.plain_ids(folder, [" ".join(words) for words in SENTENCES]))
                    self.assertEqual([[label for label in own if label is not None] for own in found[1][:-1]],
                                     [labels for _, labels in DOCUMENTS])
                    continue
                filled = [([word for word in words if word], [label for word, label in zip(words, labels, strict=True) if word])
                          for words, labels in documents]
                for i, (ids, labels) in enumerate(oracle.label_words(folder, filled)):
                    self.assertEqual(found[0][i], ids)
                    self.assertEqual(found[1][i], labels)
                    self.assertEqual(len(ids), len(labels))

    def test_all_pieces_may_have_the_label(self):
        folder = self.directory / "tokenizer"
        folder.mkdir()
        write_tokenizer(folder)
        self.write([(["ab", "é"], ["B-x", "O"])], label_key="labels")
        self.build(folder, "--label-all-tokens")
        documents, labels = read_corpus(self.directory / "built" / "corpus")
        self.assertEqual(len(documents[0]), 5)
        self.assertEqual(labels, [["B-x", "B-x", "O", "O", "O"]])
        self.build(folder, out="first")
        self.assertEqual(read_corpus(self.directory / "first" / "corpus")[1], [["B-x", None, "O", None, None]])

    def test_training_learns_words(self):
        """Names with a capital are of class 1, in both ways of writing labels, next to plain texts with labels by token."""
        folder = self.directory / "tokenizer"
        folder.mkdir()
        vocabulary = write_tokenizer(folder)
        names = ["Anna", "Bert", "Carl", "Dora"]
        plain = ["sees", "the", "red", "house"]
        documents = [([names[i % 4], plain[(i // 2) % 4], plain[(i // 3) % 4], names[(i + 1) % 4]], ["NAME", "O", -100, "NAME"])
                     for i in range(60)]
        self.write(documents)
        told = json.loads(self.build(folder, "--label-all-tokens"))
        self.assertEqual(told["documents"], 60)
        self.assertEqual(told["refused_documents"], 0)
        _, labels = read_corpus(self.directory / "built" / "corpus")
        targets = sum(label is not None for document in labels for label in document)
        run = self.config("run", data__train=[["built/corpus", 1.0]], data__validation_fraction=0.2, data__context_length=64,
                          data__tokens_per_step=600, head__kind="tokens", head__labels=["O", "NAME"], train__steps=20,
                          train__eval_every=20, train__dtype="float64", parallel__strategies=["<1,1,1>"], model__vocab=vocabulary,
                          optimizer__lr=0.01, checkpoint__every=20)
        self.train("run", 1)
        found = losses(run)
        self.assertLess(found[19][0], 0.5 * found[0][0])
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        told = json.loads(self.sluice("eval", "--model", "folder", "--corpus", "built/corpus", "--json"))
        self.assertEqual(told["targets"], targets)
        self.assertGreater(told["accuracy"], 0.9)
        unknown = self.config("unknown", data__train=[["built/corpus", 1.0]], head__kind="tokens", head__labels=["O", "PLACE"],
                              parallel__strategies=["<1,1,1>"], model__vocab=vocabulary)
        self.assertIn("the label is \"NAME\", but the model's classes are O, PLACE",
                      self.train(unknown.name, 1, expect=2).stderr)

    def test_wrong_words_are_named(self):
        folder = self.directory / "tokenizer"
        folder.mkdir()
        write_tokenizer(folder)
        lines = [{"tokens": ["a", "b"], "ner_tags": [0]}, {"tokens": ["a", None], "ner_tags": [0, 1]}, {"tokens": [], "ner_tags": []},
                 {"tokens": [""], "ner_tags": [1]}, {"tokens": ["good"], "ner_tags": [1]}]
        (self.directory / "words.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = json.loads(self.build(folder))
        self.assertEqual((told["documents"], told["refused_documents"]), (1, 4))
        said = "\n".join(told["first_refusals"])
        for fault in ("words.jsonl:1: there are 2 words under 'tokens' and 1 label under 'ner_tags'",
                      "words.jsonl:2: word 1 under 'tokens' is null", "words.jsonl:3: there is no word"):
            self.assertIn(fault, said)
        self.assertEqual(read_corpus(self.directory / "built" / "corpus")[1], [[1, None, None, None]])
        (self.directory / "words.jsonl").write_text(json.dumps(lines[3]) + "\n")
        self.assertIn("words.jsonl:1: no word gives a token", self.build(folder, "--strict", out="strict", expect=2))
        self.assertIn("--label-all-tokens is of words", self.sluice("corpus", "build", "words.jsonl", "--label-all-tokens", "--tokenizer",
                                                                    folder, "--out", "alone", expect=2))


if __name__ == "__main__":
    main()
