"""Heads in place of a vocabulary, as their user meets them: labels and pairs to folders that transformers' classes load,
beside those classes' own losses and gradients."""

import json
import math
import random
import unittest

from harness import PEFT_PYTHON, VOCABULARY, TestCase, environment, losses, main, missing, records, write_corpus
from heads_oracle import Oracle
from sft_test import write_tokenizer

STRATEGIES = ["<2,1,1> + 2x<1,1,1>", "<1,2,2>", "<1,1,4,4>", "<2,2,1>"]


def labelled_documents(count=60, seed=5):
    """Documents whose first token decides their class."""
    chance = random.Random(seed)
    documents, labels = [], []
    for _ in range(count):
        label = chance.randrange(3)
        walk = [chance.randrange(VOCABULARY // 3) + label * (VOCABULARY // 3) for _ in range(chance.randint(2, 40))]
        documents.append(walk)
        labels.append(label)
    return documents, labels


def write_labels(prefix, labels):
    prefix.with_suffix(".labels").write_text("".join(json.dumps(label) + "\n" for label in labels))


def evaluations_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if "validation_loss" in line]


class Heads(TestCase):
    elastic = False

    def write(self, documents, labels, name="labelled"):
        write_corpus(self.directory / name, documents)
        write_labels(self.directory / name, labels)

    def head_run(self, name, **changes):
        return self.config(name, **{"data__train": [["labelled", 1.0]], "data__context_length": 64,
                                    "data__tokens_per_step": 100_000, "train__dtype": "float64",
                                    "checkpoint__every": 1, **changes})

    @classmethod
    def oracle(cls):
        """The libraries; one process for all tests of the class."""
        if missing(PEFT_PYTHON):
            raise unittest.SkipTest("transformers is not set up: make parity")
        if "libraries" not in cls.__dict__:
            cls.libraries = Oracle(PEFT_PYTHON, environment(HF_HUB_OFFLINE="1"))
            cls.addClassCleanup(cls.libraries.close)
        return cls.libraries

    def first_step_beside(self, kind, documents, labels, oracle, **head):
        """A step that changes nothing, exported: transformers' loss and gradient norm on the same batch, and its logits beside
        `eval --scores`."""
        self.oracle()
        self.write(documents, labels)
        run = self.head_run("first", head__kind=kind, train__steps=1, optimizer__lr=0.0, optimizer__min_lr=0.0,
                            parallel__strategies=["<1,1,1>"], data__tokens_per_step=sum(map(len, documents)), **head)
        self.train("first", 1)
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        line = records(run)[0]
        found = self.oracle().labels(self.directory / "folder", list(zip(documents, labels, strict=True)), oracle)
        self.assertAlmostEqual(line["loss"], found["loss"], delta=1e-6)
        self.assertAlmostEqual(line["grad_norm"], found["norm"], delta=1e-5 * found["norm"])
        self.sluice("eval", "--model", "folder", "--corpus", "labelled", "--scores", "scores.jsonl", "--dtype", "float32")
        scores = [json.loads(each) for each in (self.directory / "scores.jsonl").read_text().splitlines()]
        self.assertEqual([score["document"] for score in scores], list(range(len(documents))))
        for score, logits, label in zip(scores, found["logits"], labels, strict=True):
            if oracle == "tokens":
                logits = [each for each, own in zip(logits, label, strict=True) if own is not None]
                pairs = [pair for mine, theirs in zip(score["numbers"], logits, strict=True) for pair in zip(mine, theirs, strict=True)]
            else:
                pairs = list(zip(score["numbers"], logits, strict=True))
            for mine, theirs in pairs:
                self.assertAlmostEqual(mine, theirs, delta=1e-5)
        return found

    def test_classes_are_as_transformers_has_them(self):
        documents, labels = labelled_documents()
        found = self.first_step_beside("classify", documents, labels, "class", head__labels=["a", "b", "c"])
        self.assertEqual(found["class"], "LlamaForSequenceClassification")
        self.assertEqual(found["labels"], {"0": "a", "1": "b", "2": "c"})

    def test_figures_are_as_transformers_has_them(self):
        documents, labels = labelled_documents()
        self.first_step_beside("classify", documents, [label / 3 - 0.2 for label in labels], "regression",
                               head__problem_type="regression")

    def test_several_classes_are_as_transformers_has_them(self):
        documents, labels = labelled_documents()
        marks = [[float(label == i), float(label != i), 1.0] for i, label in enumerate(labels)]
        self.first_step_beside("classify", documents, marks, "classes", head__labels=["a", "b", "c"],
                               head__problem_type="multi_label_classification")

    def test_tokens_are_as_transformers_has_them(self):
        documents, _ = labelled_documents()
        labels = [[None if i % 3 == 1 else (token + i) % 4 for i, token in enumerate(document)] for document in documents]
        found = self.first_step_beside("tokens", documents, labels, "tokens", head__labels=["a", "b", "c", "d"])
        self.assertEqual(found["class"], "LlamaForTokenClassification")

    def test_strategies_train_a_classifier_alike_and_it_learns(self):
        documents, labels = labelled_documents()
        self.write(documents, [["a", "b", "c"][label] for label in labels])
        common = {"head__kind": "classify", "head__labels": ["a", "b", "c"], "train__steps": 12, "train__eval_every": 12,
                  "data__tokens_per_step": 600, "data__validation_fraction": 0.3}
        one = self.head_run("one", parallel__strategies=["<1,1,1>"], **common)
        self.train("one", 1)
        four = self.head_run("four", parallel__strategies=STRATEGIES, **common)
        self.train("four", 4)
        expected, found = losses(one), losses(four)
        for step, (loss, norm) in expected.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-11, msg=f"step {step}")
            self.assertAlmostEqual(found[step][1], norm, delta=1e-9, msg=f"step {step}")
        self.assertLess(expected[11][0], 0.5 * expected[0][0])
        evaluations = [evaluations_of(run) for run in (one, four)]
        self.assertGreater(evaluations[0][-1]["accuracy"], 0.8)
        self.assertEqual(evaluations[0][-1]["accuracy"], evaluations[1][-1]["accuracy"])
        self.assertIn("f1", evaluations[0][-1])

    def test_a_head_beside_adapters_is_what_peft_loads(self):
        """LoRA with the head trained whole, under every strategy; PEFT finds the head in modules_to_save."""
        self.oracle()
        documents, labels = labelled_documents()
        self.write(documents, labels)
        base = self.head_run("base", data__train=[["corpus", 1.0]], train__steps=1, parallel__strategies=["<1,1,1>"],
                             data__tokens_per_step=600)
        self.train("base", 1)
        self.sluice("export", base, "--out", "folder", "--dtype", "float32")
        common = {"head__kind": "classify", "head__labels": ["a", "b", "c"], "train__steps": 6, "data__tokens_per_step": 600,
                  "lora__rank": 2, "lora__alpha": 4, "lora__targets": ["q_proj", "v_proj"]}
        runs = {}
        for name, ranks, strategies in (("one", 1, ["<1,1,1>"]), ("four", 4, STRATEGIES)):
            runs[name] = self.head_run(name, parallel__strategies=strategies, **common)
            self.take_model(name, "folder")
            self.train(name, ranks)
        expected, found = losses(runs["one"]), losses(runs["four"])
        for step, (loss, norm) in expected.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-11, msg=f"step {step}")
            self.assertAlmostEqual(found[step][1], norm, delta=1e-9, msg=f"step {step}")
        self.sluice("export", runs["four"], "--out", "adapters", "--adapters", "--dtype", "float32")
        saved = json.loads((self.directory / "adapters" / "adapter_config.json").read_text())
        self.assertEqual(saved["modules_to_save"], ["score"])
        logits = self.oracle().adapted_logits(self.directory / "folder", self.directory / "adapters", documents, 3)
        self.assert_scores(runs["four"], logits)
        self.sluice("export", runs["four"], "--out", "whole", "--dtype", "float32")
        self.assert_scores("whole", logits)

    def assert_scores(self, model, expected, corpus="labelled"):
        """What `eval --scores` says of the corpus's documents."""
        self.sluice("eval", "--model", model, "--corpus", corpus, "--scores", "scores.jsonl", "--dtype", "float32")
        found = [json.loads(each)["numbers"] for each in (self.directory / "scores.jsonl").read_text().splitlines()]
        for ours, theirs in zip(found, expected, strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                self.assertAlmostEqual(mine, other, delta=1e-5)

    def test_rewards_are_as_trl_has_them(self):
        self.oracle()
        better, _ = labelled_documents(20, seed=1)
        worse, _ = labelled_documents(20, seed=2)
        write_corpus(self.directory / "chosen", better)
        write_corpus(self.directory / "rejected", worse)
        margins = [(i % 5) / 4 for i in range(len(better))]
        write_labels(self.directory / "chosen", margins)
        common = {"data__train": [["chosen", 1.0]], "head__kind": "reward", "head__rejected": ["rejected"],
                  "head__pairs_per_step": 20, "head__center_rewards": 0.01}
        run = self.head_run("reward", train__steps=1, optimizer__lr=0.0, optimizer__min_lr=0.0,
                            parallel__strategies=["<1,1,1>"], **common)
        self.train("reward", 1)
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        pairs = [[document, margin] for better_one, worse_one, margin in zip(better, worse, margins, strict=True)
                 for document in (better_one, worse_one)]
        found = self.oracle().labels(self.directory / "folder", pairs, "reward", 0.01)
        line = records(run)[0]
        self.assertAlmostEqual(line["loss"], found["loss"], delta=1e-6)
        self.assertAlmostEqual(line["grad_norm"], found["norm"], delta=1e-5 * found["norm"])
        common |= {"train__steps": 6, "head__pairs_per_step": 12, "data__validation_fraction": 0.3, "train__eval_every": 6}
        one = self.head_run("one", parallel__strategies=["<1,1,1>"], **common)
        self.train("one", 1)
        four = self.head_run("four", parallel__strategies=STRATEGIES, **common)
        self.train("four", 4)
        expected, got = losses(one), losses(four)
        evaluations = [evaluations_of(run)[-1] for run in (one, four)]
        self.assertTrue(0 <= evaluations[0]["accuracy"] <= 1)
        for key in ("accuracy", "validation_loss"):
            self.assertAlmostEqual(evaluations[0][key], evaluations[1][key], delta=1e-11)
        for step, (loss, norm) in expected.items():
            self.assertAlmostEqual(got[step][0], loss, delta=1e-11, msg=f"step {step}")
            self.assertAlmostEqual(got[step][1], norm, delta=1e-9, msg=f"step {step}")
        self.assertLess(expected[5][0], expected[0][0])

    def test_answers_may_be_longer_than_all_better_ones(self):
        """Positions reach to the end of the longest text, whichever corpus has it: the loss is that of the rewards."""
        chance = random.Random(3)
        better = [[chance.randrange(VOCABULARY) for _ in range(chance.randint(2, 9))] for _ in range(200)]
        worse = [text[::-1] for text in better]
        worse[60] = [chance.randrange(VOCABULARY) for _ in range(60)]
        write_corpus(self.directory / "chosen", better)
        write_corpus(self.directory / "rejected", worse)
        still = {"train__steps": 100, "optimizer__lr": 0.0, "optimizer__min_lr": 0.0, "checkpoint__every": 100}  # all pairs
        run = self.head_run("reward", data__train=[["chosen", 1.0]], head__kind="reward", head__rejected=["rejected"],
                            head__pairs_per_step=2, parallel__strategies=["<1,1,1>"], **still)
        self.train("reward", 1)
        rewards = {}
        for side in ("chosen", "rejected"):
            self.sluice("eval", "--model", run, "--corpus", side, "--scores", "scores.jsonl")
            rewards[side] = [json.loads(line)["numbers"][0] for line in (self.directory / "scores.jsonl").read_text().splitlines()]
        expected = [math.log1p(math.exp(low - high)) for high, low in zip(rewards["chosen"], rewards["rejected"], strict=True)]
        found = [line["loss"] for line in records(run)]
        self.assertAlmostEqual(sum(found) / len(found), sum(expected) / len(expected), delta=1e-9)
        for side, documents in (("chosen", better), ("rejected", worse)):
            (self.directory / f"{side}.mask").write_bytes(b"".join(bytes([0] + [1] * (len(text) - 1)) for text in documents))
        preferences = self.config("preferences", data__train=[["chosen", 1.0]], data__context_length=64, rl__algorithm="dpo",
                                  rl__rejected=["rejected"], rl__prompts_per_step=2, parallel__strategies=["<1,1,1>"], **still)
        self.train("preferences", 1)
        for line in records(preferences):
            self.assertAlmostEqual(line["loss"], math.log(2), delta=1e-6)

    def test_embeddings_learn_and_strategies_agree(self):
        texts, _ = labelled_documents(48, seed=3)
        chance = random.Random(4)
        near = [[token for token in text if chance.random() < 0.8] + text[:2] for text in texts]
        write_corpus(self.directory / "texts", texts)
        write_corpus(self.directory / "near", near)
        common = {"data__train": [["texts", 1.0]], "head__kind": "embed", "head__positives": ["near"],
                  "head__pairs_per_step": 16, "train__steps": 6, "data__validation_fraction": 0.3, "train__eval_every": 6}
        one = self.head_run("one", parallel__strategies=["<1,1,1>"], **common)
        self.train("one", 1)
        four = self.head_run("four", parallel__strategies=STRATEGIES, **common)
        self.train("four", 4)
        expected, got = losses(one), losses(four)
        for step, (loss, _) in expected.items():
            self.assertAlmostEqual(got[step][0], loss, delta=1e-10, msg=f"step {step}")
        self.assertIn("recall_at_10", evaluations_of(one)[-1])
        self.assertEqual(evaluations_of(one)[-1]["recall_at_10"], evaluations_of(four)[-1]["recall_at_10"])

    def embed_beside(self, negatives, hf=None, name="embed", **head):
        """A step of embeddings that changes nothing, exported: loss, gradient norm and vectors beside sentence-transformers'
        losses on the folder that its loader reads."""
        self.oracle()
        texts, _ = labelled_documents(12, seed=3)
        sides = [texts, [text[::-1] for text in texts], [text[1:] + text[:1] + text for text in texts]][:3 if negatives else 2]
        for corpus, side in zip(("texts", "near", "far"), sides, strict=False):
            write_corpus(self.directory / corpus, side)
        run = self.head_run(name, train__steps=1, optimizer__lr=0.0, optimizer__min_lr=0.0, head__kind="embed",
                            parallel__strategies=["<1,1,1>"], data__train=[["texts", 1.0]], head__positives=["near"],
                            head__negatives=["far"] if negatives else [], head__pairs_per_step=12, head__temperature=0.1,
                            data__context_length=96, **{f"head__{key}": value for key, value in head.items()})
        if hf:
            self.take_model(name, hf)
        self.train(name, 1)
        folder = self.directory / f"{name}_folder"
        self.sluice("export", run, "--out", folder, "--dtype", "float32")
        write_tokenizer(folder)
        found, line = self.oracle().embeddings(folder, sides, head.get("matryoshka", []), 0.1), records(run)[0]
        self.assertAlmostEqual(line["loss"], found["loss"], delta=2e-6 * abs(found["loss"]))
        self.assertAlmostEqual(line["grad_norm"], found["norm"], delta=2e-5 * found["norm"])
        self.sluice("eval", "--model", folder, "--corpus", "texts", "--scores", "vectors.jsonl", "--dtype", "float32",
                    "--context-length", 96)
        ours = [json.loads(each)["numbers"] for each in (self.directory / "vectors.jsonl").read_text().splitlines()]
        for mine, theirs in zip(ours, found["vectors"], strict=True):
            length = sum(each * each for each in mine) ** 0.5
            for a, b in zip(mine, theirs, strict=True):
                self.assertAlmostEqual(a / length, b, delta=1e-5)

    def test_embeddings_are_as_sentence_transformers_has_them(self):
        for pooling in ("last", "mean", "cls"):
            with self.subTest(pooling=pooling):
                self.embed_beside(pooling == "mean", name=f"embed_{pooling}", pooling=pooling)

    def test_matryoshka_sizes_are_as_sentence_transformers_has_them(self):
        self.embed_beside(False, pooling="mean", matryoshka=[8, 20])

    def test_encoders_embed_as_sentence_transformers_has_them(self):
        """A folder of sentence-transformers comes in, without a class's prefix in its tensors' names, and goes out."""
        self.oracle()
        self.oracle().make_encoder(self.directory / "encoder", VOCABULARY)
        of_folder = {"prompts": {"query": "query: "}, "similarity_fn_name": None}
        (self.directory / "encoder" / "config_sentence_transformers.json").write_text(json.dumps(of_folder))
        self.embed_beside(True, hf="encoder")
        kept = json.loads((self.directory / "embed_folder" / "config_sentence_transformers.json").read_text())
        self.assertEqual(kept, {"prompts": {"query": "query: "}, "similarity_fn_name": "cosine"})
        pooling = json.loads((self.directory / "embed_folder" / "1_Pooling" / "config.json").read_text())
        self.assertTrue(pooling["pooling_mode_cls_token"], "the folder's own pooling was lost")
        self.embed_beside(False, hf="encoder", name="means", pooling="mean", matryoshka=[16])

    def test_a_folder_of_embeddings_becomes_a_classifier(self):
        """What says that it ends in embeddings is not exported, so the classifier is read as one."""
        self.oracle().make_encoder(self.directory / "encoder", VOCABULARY)
        (self.directory / "encoder" / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
        documents, labels = labelled_documents()
        self.write(documents, labels)
        run = self.head_run("classes", head__kind="classify", head__labels=["a", "b", "c"], train__steps=1,
                            parallel__strategies=["<1,1,1>"], data__tokens_per_step=sum(map(len, documents)))
        self.take_model("classes", "encoder")
        self.train("classes", 1)
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        names = sorted(path.name for path in (self.directory / "folder").rglob("*"))
        for name in ("modules.json", "sentence_bert_config.json", "1_Pooling"):
            self.assertNotIn(name, names)
        told = [json.loads(self.sluice("eval", "--model", model, "--corpus", "labelled", "--dtype", "float32", "--json"))
                for model in (run, "folder")]
        self.assertAlmostEqual(told[0]["loss"], told[1]["loss"], delta=1e-6)

    def test_texts_are_read_as_sentence_transformers_reads_them(self):
        """Marks that the tokenizer puts around a text count on both sides, also where a text is cut."""
        documents, _ = labelled_documents(12)
        for corpus in ("texts", "near"):
            write_corpus(self.directory / corpus, documents)
        run = self.head_run("marked", train__steps=1, head__kind="embed", head__pooling="last", head__positives=["near"],
                            head__pairs_per_step=4, data__train=[["texts", 1.0]], parallel__strategies=["<1,1,1>"],
                            model__vocab=512)
        self.train("marked", 1)
        folder = self.directory / "folder"
        self.sluice("export", run, "--out", folder, "--dtype", "float32")
        write_tokenizer(folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        begin, end = tokenizer["added_tokens"][:2]
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": begin["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": end["content"], "type_id": 0}}],
            "special_tokens": {mark["content"]: {"id": mark["content"], "ids": [mark["id"]], "tokens": [mark["content"]]}
                               for mark in (begin, end)}}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end["content"], "pad_token": end["content"]}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24}))
        texts = ["a tide clock", "s", "north by north west, and a long way behind it"]
        (self.directory / "texts.txt").write_text("\n".join(texts) + "\n")
        told = self.sluice("embed", "texts.txt", "--model", folder)
        self.assertEqual(told, self.sluice("embed", "texts.txt", "--model", folder, "--context-length", 24))
        found = [json.loads(line)["embedding"] for line in told.splitlines()]
        for mine, theirs in zip(found, self.oracle().encoded(folder, texts), strict=True):
            for a, b in zip(mine, theirs, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5)

    def take_model(self, name, folder):
        """Puts a model folder in place of a configuration's sizes."""
        path = self.directory / f"{name}.toml"
        text = path.read_text()
        begin, end = text.index("[model]"), text.index("[data]")
        path.write_text(text[:begin] + f'[model]\nhf = "{folder}"\n' + text[end:])

    def test_wrong_widths_are_named(self):
        self.head_run("wide", head__kind="embed", head__positives=["corpus"], head__matryoshka=[8, 65],
                      data__train=[["corpus", 1.0]], parallel__strategies=["<1,1,1>"])
        self.assertIn("head.matryoshka: 65 is above the 32", self.train("wide", 1, expect=2).stderr)

    def test_a_class_that_pools_otherwise_is_named(self):
        documents, labels = labelled_documents(4)
        self.write(documents, labels)
        self.head_run("mean", head__kind="classify", head__labels=["a", "b", "c"], head__pooling="mean",
                      parallel__strategies=["<1,1,1>"])
        self.assertIn("LlamaForSequenceClassification takes the last token: give last", self.train("mean", 1, expect=2).stderr)

    def test_strategies_pool_alike(self):
        texts, _ = labelled_documents(48, seed=3)
        write_corpus(self.directory / "texts", texts)
        write_corpus(self.directory / "near", [text[::-1] for text in texts])
        for pooling in ("mean", "cls"):
            common = {"data__train": [["texts", 1.0]], "head__kind": "embed", "head__positives": ["near"],
                      "head__pooling": pooling, "head__pairs_per_step": 16, "train__steps": 4}
            one = self.head_run(f"one-{pooling}", parallel__strategies=["<1,1,1>"], **common)
            self.train(one.name, 1)
            four = self.head_run(f"four-{pooling}", parallel__strategies=STRATEGIES, **common)
            self.train(four.name, 4)
            expected, got = losses(one), losses(four)
            for step, (loss, norm) in expected.items():
                self.assertAlmostEqual(got[step][0], loss, delta=1e-10, msg=f"{pooling}, step {step}")
                self.assertAlmostEqual(got[step][1], norm, delta=1e-9, msg=f"{pooling}, step {step}")

    def test_wrong_labels_are_named(self):
        documents, _ = labelled_documents(4)
        for labels, said in ((["a", "b", "a", "d"], "but the model's classes are a, b, c"),
                             (["a", ["a", "b"], "b", "c"], "a text has one class"), ([0, 1, 2, 3], "the label is 3"),
                             (["a"] * 3, "has 3 lines, but the corpus has 4 documents")):
            self.write(documents, labels)
            self.head_run("wrong", head__kind="classify", head__labels=["a", "b", "c"], parallel__strategies=["<1,1,1>"])
            self.assertIn(said, self.train("wrong", 1, expect=2).stderr)
        self.head_run("unlabelled", head__kind="classify", head__labels=["a", "b", "c"], data__train=[["corpus", 1.0]],
                      parallel__strategies=["<1,1,1>"])
        self.assertIn("has no labels", self.train("unlabelled", 1, expect=2).stderr)
        self.head_run("unnamed", head__kind="classify", parallel__strategies=["<1,1,1>"])
        self.assertIn("name the classes", self.train("unnamed", 1, expect=2).stderr)

    def test_what_a_head_cannot_learn_from_is_named(self):
        for name, said, head in (
                ("alone", "a pair alone has no other text", {"head__kind": "embed", "head__positives": ["corpus"], "head__pairs_per_step": 1}),
                ("twice", "head.labels names 'a' twice", {"head__kind": "classify", "head__labels": ["a", "b", "a"]}),
                ("none", "head.positives is empty", {"head__kind": "embed"}),
                ("no-worse", "head.rejected is empty", {"head__kind": "reward"})):
            self.head_run(name, data__train=[["corpus", 1.0]], parallel__strategies=["<1,1,1>"], **head)
            self.assertIn(said, self.train(name, 1, expect=2).stderr)

    def test_labels_are_built_from_json_lines(self):
        folder = self.directory / "tokenizer"
        folder.mkdir()
        write_tokenizer(folder)
        lines = [{"text": "good", "label": "yes"}, {"text": "", "label": "no"}, {"text": "bad", "label": "no"},
                 {"text": "unlabelled"}, {"text": "so\nso", "label": ["yes", "no"]}]
        (self.directory / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = json.loads(self.sluice("corpus", "build", "texts.jsonl", "--labels", "--tokenizer", folder, "--out", "built", "--json"))
        self.assertEqual(told["documents"], 3)
        self.assertEqual(told["refused_documents"], 2)
        self.assertIn("texts.jsonl:2: the text is empty", told["first_refusals"][0])
        self.assertIn("texts.jsonl:4: there is no 'label'", told["first_refusals"][1])
        self.assertEqual((self.directory / "built" / "corpus.labels").read_text(), '"yes"\n"no"\n["yes","no"]\n')
        self.assertEqual(told["tokens"], len("good") + len("bad") + len("so\nso"), "a token was added behind a text")
        self.sluice("corpus", "build", "texts.jsonl", "--labels", "--label-key", "text", "--tokenizer", folder, "--out", "keyed")
        self.assertEqual((self.directory / "keyed" / "corpus.labels").read_text().count("\n"), 4)
        self.sluice("corpus", "merge", "built/corpus", "built/corpus", "--out", "merged")
        self.assertEqual((self.directory / "merged" / "corpus.labels").read_text().count("\n"), 6)
        self.assertIn("the text is empty", self.sluice("corpus", "build", "texts.jsonl", "--labels", "--strict", "--tokenizer",
                                                       folder, "--out", "strict", expect=2))

    def test_columns_are_built_beside_each_other(self):
        folder = self.directory / "tokenizer"
        folder.mkdir()
        write_tokenizer(folder)
        lines = [{"anchor": "a", "positive": "aa", "negative": "b"}, {"anchor": "c", "positive": " "}, {"anchor": "", "positive": "d"},
                 {"anchor": "e"}, {"anchor": "f", "positive": 3}, {"anchor": "g", "positive": "gg", "negative": "h"}]
        (self.directory / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        build = ("corpus", "build", "pairs.jsonl", "--tokenizer", folder, "--columns")
        told = json.loads(self.sluice(*build, "anchor,positive", "--out", "built", "--json"))
        self.assertEqual(list(told), ["anchor", "positive"])
        for column, tokens in (("anchor", 2), ("positive", 4)):
            self.assertEqual((told[column]["documents"], told[column]["tokens"]), (2, tokens), "a token was added behind a text")
            self.assertEqual(told[column]["refused_documents"], 4)
            faults = ("2: the text under 'positive' is empty", "3: the text under 'anchor' is empty", "4: there is no text under 'positive'")
            for found, fault in zip(told[column]["first_refusals"], faults, strict=True):
                self.assertIn(f"pairs.jsonl:{fault}", found)
            self.assertTrue((self.directory / "built" / column / "corpus.bin").exists())
        self.assertIn("pairs.jsonl:2: the text under 'positive' is empty",
                      self.sluice(*build, "anchor,positive", "--strict", "--out", "strict", expect=2))
        for columns, more, said in (("anchor", (), "give two names or more"), ("anchor,anchor", (), "give two names or more"),
                                    ("anchor,../x", (), "give two names or more"), ("anchor,positive", ("--labels",), "are texts"),
                                    ("anchor,positive", ("--dedup", "exact"), "leave out --delimiter and --dedup")):
            self.assertIn(said, self.sluice(*build, columns, *more, "--out", "wrong", expect=2))
        (self.directory / "plain.txt").write_text("plain\n")
        self.assertIn("plain text has no columns", self.sluice("corpus", "build", "plain.txt", "--tokenizer", folder, "--columns",
                                                               "anchor,positive", "--strict", "--out", "plain", expect=2))

    def test_a_folder_with_a_head_is_taken_up_again(self):
        documents, labels = labelled_documents()
        self.write(documents, labels)
        whole = {"data__tokens_per_step": sum(map(len, documents)), "parallel__strategies": ["<1,1,1>"]}
        run = self.head_run("first", head__kind="classify", head__labels=["a", "b", "c"], train__steps=3, **whole)
        self.train("first", 1)
        self.sluice("export", run, "--out", "folder", "--dtype", "float32")
        config = self.head_run("again", head__kind="classify", train__steps=1, **whole)
        self.take_model("again", "folder")
        path = self.directory / "again.toml"
        self.train("again", 1)
        self.assertLess(losses(config)[0][0], losses(run)[0][0])
        path.write_text(path.read_text().replace('kind = "classify"', 'kind = "none"'))
        self.assertIn("head.kind is none", self.train("again", 1, expect=2).stderr)


if __name__ == "__main__":
    main()
