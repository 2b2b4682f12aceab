"""Runs whose data change: in each phase the batches are those of the uninterrupted run, wherever it is resumed."""

import shutil

from harness import TestCase, committed_steps, losses, main, make_documents, records, write_corpus

STEPS = 9
# A longer context at step 3, larger batches at step 5, another corpus at step 7.
PHASES = """
[[phase]]
step = 3
context_length = 320

[[phase]]
step = 5
tokens_per_step = 1024

[[phase]]
step = 7
train = [["other", 1.0], ["corpus", 0.5]]
"""


class Phases(TestCase):
    def setUp(self):
        super().setUp()
        write_corpus(self.directory / "corpus", make_documents(longest=300))
        write_corpus(self.directory / "other", make_documents(count=50, longest=200, seed=9))
        write_corpus(self.directory / "held", make_documents(count=8, seed=11))

    def phased(self, run, phases=PHASES, **changes):
        changes = {"train__steps": STEPS, "checkpoint__every": 1, "checkpoint__keep": STEPS, **changes}
        directory = self.config(run, **changes)
        with (self.directory / f"{run}.toml").open("a") as file:
            file.write(phases)
        return directory

    def test_resumes_to_the_bit_in_every_phase(self):
        whole = self.phased("whole")
        self.train("whole", 4)
        self.assertEqual(committed_steps(whole), list(range(1, STEPS + 1)))
        tokens = [record["tokens"] for record in records(whole)]
        self.assertTrue(all(count <= 512 for count in tokens[:5]), tokens)
        self.assertTrue(any(count > 512 for count in tokens[5:]), tokens)
        for stop in (2, 3, 4, 5, 6, 7, 8):
            with self.subTest(stop=stop):
                name = f"from{stop}"
                shutil.copytree(whole, self.directory / name)
                for step in range(stop + 1, STEPS + 1):
                    shutil.rmtree(self.directory / name / "checkpoints" / f"step-{step}")
                run = self.phased(name)
                self.train(name, 4, "--resume", "auto")
                self.assertEqual(losses(run), losses(whole))
                self.assert_same_checkpoint(run, whole, STEPS)

    def test_all_ranks_equal_one_in_float64(self):
        four = self.phased("four", train__dtype="float64")
        one = self.phased("one", train__dtype="float64", parallel__strategies=["<1,1,1>"])
        self.train("four", 4)
        self.train("one", 1)
        self.assert_close_losses(four, one, 1e-11, 1e-11)

    def test_a_phase_is_added_where_the_run_stopped(self):
        self.phased("run", phases="", train__steps=4)
        self.train("run", 4)
        run = self.phased("run", phases='[[phase]]\nstep = 4\ntrain = [["other", 1.0]]\n', train__steps=6)
        self.train("run", 4, "--resume", "auto")
        self.assertEqual(sorted(losses(run)), list(range(6)))
        # What was trained on is not rewritten.
        self.phased("run", phases="", train__steps=8, data__train=[["other", 1.0]])
        outcome = self.train("run", 4, "--resume", "auto", expect=2)
        self.assertRegex(outcome.stderr, "other|corpora")

    def test_validation_sets_are_evaluated_by_name(self):
        run = self.phased("run", phases=PHASES.replace("step = 3", "step = 2"), train__steps=4, train__eval_every=2)
        path = self.directory / "run.toml"
        sets = 'validation = {held = "held", both = ["held", "other"]}\n'
        path.write_text(path.read_text().replace("[data]\n", "[data]\n" + sets))
        self.train("run", 4)
        evaluations = [record for record in records(run) if "validation_loss" in record]
        self.assertEqual([(record["step"], record["set"]) for record in evaluations],
                         [(1, "both"), (1, "held"), (3, "both"), (3, "held")])
        self.assertGreater(evaluations[0]["targets"], evaluations[1]["targets"])
        self.assertIn("held", (run / "report.html").read_text())


if __name__ == "__main__":
    main()
