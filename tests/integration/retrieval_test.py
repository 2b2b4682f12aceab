"""Queries among documents: `eval --positives` and the evaluations of a run, beside ranks that are counted one by one and
sentence-transformers' InformationRetrievalEvaluator."""

import json
import math
import random

from harness import PEFT_PYTHON, VOCABULARY, TestCase, environment, main, missing, write_corpus
from heads_oracle import Oracle
from heads_test import evaluations_of

KEYS = ("recall_at_1", "recall_at_10", "mrr_at_10", "ndcg_at_10")


def texts_of(count, seed, longest=40):
    chance = random.Random(seed)
    return [[chance.randrange(VOCABULARY) for _ in range(chance.randint(2, longest))] for _ in range(count)]


def counted(queries, documents):
    """The figures of vectors, whose texts are all different: `documents` are those of each query and then others."""
    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    found = dict.fromkeys(KEYS, 0.0)
    for i, query in enumerate(queries):
        scores = [cosine(query, document) for document in documents]
        rank = 1 + sum(score > scores[i] for score in scores)
        for key, figure in zip(KEYS, (rank == 1, rank <= 10, 1 / rank, 1 / math.log2(1 + rank)), strict=True):
            found[key] += (figure if rank <= 10 else 0) / len(queries)
    return found


class Retrieval(TestCase):
    elastic = False

    def trained(self, count=50):
        """A folder of an embedding model, and three corpora: queries, their documents, others."""
        queries = texts_of(count, 3)
        chance = random.Random(4)
        sides = {"queries": queries, "near": [[t for t in text if chance.random() < 0.6] + text[:2] for text in queries],
                 "far": texts_of(count, 5)}
        for name, texts in sides.items():
            write_corpus(self.directory / name, texts)
        run = self.config("run", data__train=[["queries", 1.0]], data__validation_fraction=0.5, data__context_length=64,
                          head__kind="embed", head__positives=["near"], head__negatives=["far"], head__pairs_per_step=16,
                          head__pooling="mean", train__steps=3, train__eval_every=3, train__dtype="float64", checkpoint__every=3,
                          parallel__strategies=["<1,1,1>"])
        self.train("run", 1)
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        return run, sides

    def vectors(self, corpus, *more):
        self.sluice("eval", "--model", "folder", "--corpus", corpus, "--scores", "vectors.jsonl", *more)
        return [json.loads(line)["numbers"] for line in (self.directory / "vectors.jsonl").read_text().splitlines()]

    def evaluated(self, *more):
        return json.loads(self.sluice("eval", "--model", "folder", "--corpus", "queries", "--positives", "near", "--json", *more))

    def assert_figures(self, found, expected):
        for key in KEYS:
            self.assertAlmostEqual(found[key], expected[key], delta=1e-9, msg=key)

    def test_figures_are_those_of_ranks_counted_one_by_one(self):
        run, sides = self.trained()
        queries, near, far = (self.vectors(name) for name in sides)
        alone = self.evaluated()
        self.assertEqual((alone["queries"], alone["documents"]), (50, 50))
        self.assert_figures(alone, counted(queries, near))
        with_others = self.evaluated("--negatives", "far")
        self.assertEqual(with_others["documents"], 100)
        self.assert_figures(with_others, counted(queries, near + far))
        self.assertLess(with_others["mrr_at_10"], alone["mrr_at_10"])
        for more in (("--nproc", 4), ("--nproc", 4, "--strategy", "<2,1,1> + <1,1,2>"), ("--tokens-per-batch", 64)):
            with self.subTest(more):
                self.assert_figures(self.evaluated(*more), alone)
        self.assert_figures(self.evaluated("--sequences", 7), counted(queries[:7], near[:7]))
        said = self.sluice("eval", "--model", "folder", "--corpus", "queries", "--positives", "near")
        self.assertIn(f"recall at 10 {alone['recall_at_10']:.4f}", said)
        self.assertIn("of 50 queries among 50 documents", said)
        # The run's own evaluation, of the documents that it held out, is in its lines and its report.
        line = evaluations_of(run)[-1]
        self.assertTrue(0 < line["mrr_at_10"] <= line["ndcg_at_10"] <= line["recall_at_10"] <= 1)
        self.sluice("report", run)
        self.assertIn("recall_at_10", (run / "report.html").read_text())

    def test_figures_are_those_of_sentence_transformers(self):
        if missing(PEFT_PYTHON):
            self.skipTest("transformers is not set up: make parity")
        _, sides = self.trained()
        oracle = Oracle(PEFT_PYTHON, environment(HF_HUB_OFFLINE="1"))
        self.addCleanup(oracle.close)
        theirs = oracle.retrieval([self.vectors(name) for name in sides])
        self.assert_figures(self.evaluated("--negatives", "far"), theirs)

    def test_long_texts_are_cut_in_front_of_their_common_end(self):
        self.trained()
        texts = [text + [63] for text in texts_of(12, 9, longest=60)]
        write_corpus(self.directory / "long", texts)
        cut = [text if len(text) <= 16 else [*text[:15], 63] for text in texts]
        self.assertNotEqual(texts, cut)
        write_corpus(self.directory / "cut", cut)
        both = [self.sluice("eval", "--model", "folder", "--corpus", name, "--positives", name, "--json", "--context-length", 16)
                for name in ("long", "cut")]
        self.assertEqual(both[0], both[1])
        dropped = json.loads(self.sluice("eval", "--model", "folder", "--corpus", "long", "--positives", "long", "--json",
                                         "--context-length", 16, "--overflow", "drop"))
        self.assertEqual(dropped["queries"], sum(len(text) <= 16 for text in texts))
        self.assertEqual(dropped["recall_at_1"], 1)

    def test_wrong_requests_are_named(self):
        self.trained(20)
        write_corpus(self.directory / "fewer", texts_of(19, 1))
        write_corpus(self.directory / "single", [[5]])
        ask = ("eval", "--model", "folder", "--corpus", "queries")
        for more, said in ((("--positives", "fewer"), "fewer has 19 documents and queries 20: they belong together"),
                           (("--negatives", "far"), "--negatives are beside --positives"),
                           (("--positives", "near", "--scores", "s.jsonl"), "leave out --positives"),
                           (("--positives", "near", "--overflow", "split"), "an embedding is of a whole text"),
                           (("--positives", "near", "--context-length", 2, "--overflow", "drop"), "no query is left"),
                           ((), "with --positives")):
            self.assertIn(said, self.sluice(*ask, *more, expect=2))
        one = json.loads(self.sluice("eval", "--model", "folder", "--corpus", "single", "--positives", "single", "--json"))
        self.assertEqual((one["queries"], one["recall_at_1"]), (1, 1))
        run = self.config("words", train__steps=1, parallel__strategies=["<1,1,1>"], checkpoint__every=1)
        self.train("words", 1)
        self.assertIn("ends in none", self.sluice("eval", "--model", run, "--corpus", "corpus", "--positives", "corpus", expect=2))


if __name__ == "__main__":
    main()
