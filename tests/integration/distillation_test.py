"""A student of a frozen teacher, as its user meets it: the divergences of the paper on transformers' models, the same numbers
under every strategy, resumed, and wrong teachers named."""

import json
import re
import shutil
import subprocess

from harness import RUN_TIMEOUT_S, TRANSFORMERS_PYTHON, TestCase, environment, losses, main, missing, records, write_corpus
from heads_test import labelled_documents, write_labels

STRATEGIES = ["<2,1,1> + 2x<1,1,1>", "<1,2,2>", "<1,1,4,4>", "<2,2,1>"]
DIVERGENCES = {"forward_kl": {}, "reverse_kl": {}, "jsd": {"teacher__beta": 0.3, "teacher__temperature": 2.0}}
# A second teacher: smaller, and of another seed.
SECOND = {"model__hidden": 32, "model__layers": 4, "model__ffn_hidden": 48, "model__seed": 3}
SEVERAL = {"teacher__hf": ["teacher", "second"], "teacher__weights": [3.0, 1.0]}
# Rows of whole blocks, of which int8 has 64 numbers each.
WHOLE_BLOCKS = {"model__hidden": 64, "model__ffn_hidden": 128}
# Prints losses and gradient norms of students, by cases: generalised JSD as GKD's equation 1 has it, whose ends are forward and
# reverse KL, summed over teachers by their weights. The mean is over tokens, as in TRL's GKDTrainer.generalized_jsd_loss.
BESIDE = """
import json, sys
import torch
from torch.nn.functional import log_softmax
from transformers import AutoModelForCausalLM
def kl(of, other):
    return (of.exp() * (of - other)).sum()
def divergence_of(p, q, divergence, beta):
    if divergence == "forward_kl":
        return kl(p, q)
    if divergence == "reverse_kl":
        return kl(q, p)
    m = torch.log(beta * p.exp() + (1 - beta) * q.exp())
    return beta * kl(p, m) + (1 - beta) * kl(q, m)
def beside(folder, divergence, beta, temperature, weights):
    load = lambda name: AutoModelForCausalLM.from_pretrained(name, dtype=torch.float64).eval()
    student, teachers = load(folder), [(load(name), weight) for name, weight in weights.items()]
    total, count = 0, 0
    for ids in json.loads(sys.argv[1]):
        row = torch.tensor([ids])
        q = log_softmax(student(row).logits[0, :-1].double() / temperature, -1)
        for teacher, weight in teachers:
            with torch.no_grad():
                p = log_softmax(teacher(row).logits[0, :-1].double() / temperature, -1)
            total = total + weight * divergence_of(p, q, divergence, beta)
        count += len(ids) - 1
    loss = total / count
    loss.backward()
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in student.parameters() if p.grad is not None))
    return {"loss": loss.item(), "norm": norm.item()}
print(json.dumps([beside(*case) for case in json.loads(sys.argv[2])]))
"""


class Distillation(TestCase):
    elastic = False

    def teach(self, name="teacher", **changes):
        """A folder of a model that has learnt the corpus, larger than the student."""
        shutil.copytree(self.kept(self.taught, name=name, **changes), self.directory / name)
        return name

    def taught(self, name, **changes):
        run = self.config(f"{name}_run", **{"model__hidden": 48, "model__layers": 5, "model__ffn_hidden": 80, "train__steps": 10,
                                            "parallel__strategies": ["<1,1,1>"], "checkpoint__every": 10, **changes})
        self.train(f"{name}_run", 1)
        self.sluice("export", run, "--out", name, "--dtype", "float32")
        return self.directory / name

    def student(self, name, **changes):
        return self.config(name, **{"teacher__hf": "teacher", "train__dtype": "float64", "train__steps": 6, **changes})

    def test_divergences_are_those_of_the_paper(self):
        if missing(TRANSFORMERS_PYTHON):
            self.skipTest("transformers is not set up: make parity")
        self.teach()
        self.teach("second", **SECOND)
        documents, _ = labelled_documents(20)
        write_corpus(self.directory / "labelled", documents)
        cases = []
        runs = {**DIVERGENCES, "several": {"teacher__divergence": "reverse_kl", **SEVERAL}}
        for run_name, options in runs.items():
            name, divergence = f"first_{run_name}", options.get("teacher__divergence", run_name)
            run = self.student(name, data__train=[["labelled", 1.0]], data__tokens_per_step=sum(map(len, documents)),
                               train__steps=1, optimizer__lr=0.0, optimizer__min_lr=0.0, checkpoint__every=1,
                               parallel__strategies=["<1,1,1>"], **{"teacher__divergence": divergence, **options})
            self.train(name, 1)
            self.sluice("export", run, "--out", f"{name}_folder", "--dtype", "float32")
            cases.append((f"{name}_folder", divergence, options.get("teacher__beta", 0.5),
                          options.get("teacher__temperature", 1.0),
                          {"teacher": 0.75, "second": 0.25} if run_name == "several" else {"teacher": 1.0}))
        result = subprocess.run([TRANSFORMERS_PYTHON, "-c", BESIDE, json.dumps(documents), json.dumps(cases)],
                                cwd=self.directory, env=environment(HF_HUB_OFFLINE="1"), text=True, capture_output=True,
                                timeout=RUN_TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        for name, found in zip(runs, json.loads(result.stdout), strict=True):
            with self.subTest(name):
                line = records(self.directory / f"first_{name}")[0]
                self.assertAlmostEqual(line["loss"], found["loss"], delta=1e-6)
                self.assertAlmostEqual(line["grad_norm"], found["norm"], delta=1e-5 * found["norm"])

    def test_a_dry_run_for_a_cluster_tries_the_longest_sequence_with_its_teacher(self):
        """Both models fit, but not the rows and the output matrix that the teacher leaves beside it."""
        wide = {"model__hidden": 512, "model__vocab": 4096}
        self.teach(**wide, model__layers=1, train__steps=1, checkpoint__every=1)
        for gib, status in ((0.0525, 3), (0.06, 0)):
            self.student("dry", model__vocab=4096, memory__device_gib=gib, memory__margin_gib=0.0, train__dtype="bfloat16",
                         parallel__strategies=["8x<1,1,1>"])
            told = self.sluice("train", "--config", "dry.toml", "--dry-run", "--cluster", "h100x8", expect=status)
            self.assertEqual(status != 0, "for the rows that it leaves" in told, told)

    def test_strategies_distil_alike_and_the_student_comes_nearer(self):
        self.teach()
        for divergence, options in DIVERGENCES.items():
            with self.subTest(divergence):
                common = {"teacher__divergence": divergence, **options}
                one = self.student(f"one_{divergence}", parallel__strategies=["<1,1,1>"], **common)
                self.train(f"one_{divergence}", 1)
                four = self.student(f"four_{divergence}", parallel__strategies=STRATEGIES, **common)
                self.train(f"four_{divergence}", 4)
                expected, found = losses(one), losses(four)
                for step, (loss, norm) in expected.items():
                    self.assertAlmostEqual(found[step][0], loss, delta=1e-11, msg=f"step {step}")
                    self.assertAlmostEqual(found[step][1], norm, delta=1e-9, msg=f"step {step}")
                self.assertLess(expected[5][0], expected[0][0])
                self.assertIn("teacher_ms", records(four)[0])

    def test_several_teachers_distil_alike_and_resumed(self):
        self.teach()
        self.teach("second", **SECOND)
        common = {**SEVERAL, "optimizer__decay": "constant", "checkpoint__every": 3}
        one = self.student("one", parallel__strategies=["<1,1,1>"], **common)
        self.train("one", 1)
        four = self.student("four", parallel__strategies=STRATEGIES, train__steps=3, **common)
        self.train("four", 4)
        self.student("four", parallel__strategies=["<1,1,3>"], **common)
        self.train("four", 3, "--resume", "auto")
        expected, found = losses(one), losses(four)
        self.assertEqual(len(expected), 6)
        for step, (loss, norm) in expected.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-11, msg=f"step {step}")
            self.assertAlmostEqual(found[step][1], norm, delta=1e-9, msg=f"step {step}")
        for line in records(four):
            acts = line["acts"]
            self.assertEqual([act["name"] for act in acts], ["teacher 1", "teacher 2", "update"])
            self.assertAlmostEqual(line["teacher_ms"], acts[0]["ms"] + acts[1]["ms"], places=3)
            self.assertAlmostEqual(line["predicted_ms"], sum(act["predicted_ms"] for act in acts), places=3)

    def test_a_teacher_in_two_halves_is_that_teacher(self):
        self.teach()
        found = []
        for name, teacher in (("whole", ["teacher"]), ("halves", ["teacher", "teacher"])):
            run = self.student(name, teacher__hf=teacher, parallel__strategies=["<2,1,1>"], train__steps=3)
            self.train(name, 2)
            found.append(losses(run))
        self.assertEqual(*found)

    def test_a_teacher_in_codes_is_one_that_was_expanded_beforehand(self):
        """An adapter that learns nothing leaves the coded base, which an export expands."""
        self.teach("teacher", **WHOLE_BLOCKS)
        for code in ("nf4", "int8", "mxfp4"):
            with self.subTest(code):
                self.config(f"base_{code}", lora__rank=2, optimizer__lr=0.0, optimizer__min_lr=0.0, train__steps=1,
                            checkpoint__every=1, parallel__strategies=["<1,1,1>"])
                text = (self.directory / f"base_{code}.toml").read_text()
                (self.directory / f"base_{code}.toml").write_text(
                    re.sub(r"\[model\][^\[]*", f'[model]\nhf = "teacher"\nbase = "{code}"\n', text))
                self.train(f"base_{code}", 1)
                self.sluice("export", f"base_{code}", "--out", f"expanded_{code}", "--dtype", "float32")
                found = []
                for name, changes in (("coded", {"teacher__base": code}), ("expanded", {"teacher__hf": f"expanded_{code}"})):
                    run = self.student(f"{name}_{code}", parallel__strategies=["<2,1,1>", "<1,1,2,2>", "<1,2,1>"], train__steps=3,
                                       parallel__select="cycle", **changes)
                    self.train(f"{name}_{code}", 2)
                    found.append(losses(run))
                self.assertEqual(*found)
        plain = self.student("plain", parallel__strategies=["<2,1,1>"], train__steps=1)
        self.train("plain", 2)
        self.assertNotEqual(losses(plain)[0], found[0][0])

    def test_a_resumed_run_goes_on_as_if_nothing_had_been(self):
        self.teach()
        common = {"optimizer__decay": "constant", "checkpoint__every": 3}
        self.student("whole", parallel__strategies=["<1,1,1>"], **common)
        self.train("whole", 1)
        self.student("part", parallel__strategies=["2x<1,1,1>"], train__steps=3, **common)
        self.train("part", 2)
        self.student("part", parallel__strategies=["<1,2,2>"], **common)
        self.train("part", 4, "--resume", "auto")
        expected, found = losses(self.directory / "whole"), losses(self.directory / "part")
        for step, (loss, _) in expected.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-11, msg=f"step {step}")

    def test_narrow_types_and_adapters_train(self):
        self.teach()
        run = self.student("narrow", train__dtype="bfloat16", parallel__strategies=["<2,1,1>"])
        self.train("narrow", 2)
        self.assertLess(losses(run)[5][0], losses(run)[0][0])
        adapted = self.student("adapted", parallel__strategies=["<1,1,2,2>"], lora__rank=4)
        self.train("adapted", 2)
        self.assertLess(losses(adapted)[5][0], losses(adapted)[0][0])

    def test_wrong_teachers_are_named(self):
        def refused(expect=2, **changes):
            self.student("refused", parallel__strategies=["<1,1,1>"], **changes)
            return self.train("refused", 1, expect=expect).stderr

        self.assertIn("has no config.json", refused(teacher__hf="nowhere"))
        self.assertIn("teacher.weights is [2], which has an effect only beside several folders", refused(teacher__weights=[2.0]))
        self.assertIn('teacher.base is "nf4", which has an effect only beside teacher.hf',
                      refused(teacher__hf=[], teacher__base="nf4"))
        self.teach("other", model__vocab=80)
        self.assertIn("rows for 80 tokens, but the model that is trained has 64", refused(teacher__hf="other"))
        documents, labels = labelled_documents()
        write_corpus(self.directory / "labelled", documents)
        write_labels(self.directory / "labelled", labels)
        self.config("classes", head__kind="classify", head__labels=["a", "b", "c"], train__steps=1, checkpoint__every=1,
                    data__train=[["labelled", 1.0]], parallel__strategies=["<1,1,1>"])
        self.train("classes", 1)
        self.sluice("export", "classes", "--out", "classifier", "--dtype", "float32")
        self.assertIn("ends in no vocabulary", refused(teacher__hf="classifier"))
        self.teach()
        self.assertIn("teacher.weights has 3 numbers, but teacher.hf names 2 folders",
                      refused(teacher__hf=["teacher", "teacher"], teacher__weights=[1, 2, 3]))
        self.assertIn("teacher.base is int8, but", refused(teacher__base="int8"))
        self.assertIn("teacher.hf and train.z_loss are both objectives", refused(train__z_loss=1e-4))
        self.assertIn("teacher.hf and head.kind are both objectives", refused(head__kind="classify", head__labels=["a", "b", "c"],
                                                    data__train=[["labelled", 1.0]]))
        self.teach("large", model__ffn_hidden=4096)  # at work it takes more than the student
        self.assertIn("teacher.hf names large", refused(expect=3, teacher__hf="large", memory__device_gib=0.037, memory__margin_gib=0.0))
        self.teach("shallow", model__layers=2)
        self.student("cut", parallel__strategies=["<1,4,1>"], teacher__hf="shallow")
        self.assertIn("which no strategy of the run can cut", self.train("cut", 4, expect=2).stderr)


if __name__ == "__main__":
    main()
