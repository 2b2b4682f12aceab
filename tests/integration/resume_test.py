"""A run that stops and resumes is the run that never stopped: to the bit on as many ranks, within rounding on
others; and real processes under changing strategies compute what one rank computes."""

import json
import shutil

from harness import (HEADS, TestCase, committed_steps, losses, main, make_documents, rank_processes, records, terminate,
                     write_corpus, write_head_corpora)

STEPS = 8
HALF = 4


class FromTheMiddle(TestCase):
    def undisturbed(self, **changes):
        """A run on 4 ranks with a checkpoint in its middle; tests only copy it."""
        return self.kept(self.train_undisturbed, **changes)

    def train_undisturbed(self, **changes):
        run = self.config("whole", train__steps=STEPS, checkpoint__every=HALF, **changes)
        self.train("whole", 4)
        self.assertEqual(committed_steps(run), [HALF, STEPS])
        return run

    def resumed(self, whole, ranks, **changes):
        """A copy of `whole` taken back to its middle and finished on `ranks` ranks."""
        name = f"on{ranks}"
        shutil.copytree(whole, self.directory / name)
        shutil.rmtree(self.directory / name / "checkpoints" / f"step-{STEPS}")
        if ranks != 4:
            changes["parallel__strategies"] = [f"{ranks}x<1,1,1>"]
        run = self.config(name, train__steps=STEPS, checkpoint__every=HALF, **changes)
        self.train(name, ranks, "--resume", "auto")
        self.assertEqual(sorted(losses(run)), list(range(STEPS)))
        return run


class Resume(FromTheMiddle):
    def test_as_many_ranks_bitwise(self):
        """Rounding by chance, in gradients that travel in 8 bits, is the same chance again."""
        whole = self.undisturbed(link__push="int8")
        run = self.resumed(whole, 4, link__push="int8")
        self.assertEqual(losses(run), losses(whole))
        self.assert_same_checkpoint(run, whole, STEPS)
        self.assertGreaterEqual(len({record["strategy"] for record in records(run)}), 2)

    def test_moments_of_8_bits(self):
        """Written wide, they are coded to the same bits again, on any number of ranks; and wide ones go on from them."""
        changes = {"train__dtype": "float64", "model__hidden": 64, "model__ffn_hidden": 172}
        whole = self.undisturbed(**changes, optimizer__name="adamw_8bit")
        run = self.resumed(whole, 4, **changes, optimizer__name="adamw_8bit")
        self.assertEqual(losses(run), losses(whole))
        self.assert_same_checkpoint(run, whole, STEPS)
        run = self.resumed(whole, 2, **changes, optimizer__name="adamw_8bit")
        self.assert_close_losses(run, whole, 1e-11, 1e-11)
        wide = self.resumed(whole, 1, **changes, optimizer__name="adamw")
        self.assertEqual([losses(wide)[step] for step in range(HALF)], [losses(whole)[step] for step in range(HALF)])
        self.assertNotEqual(losses(wide)[STEPS - 1], losses(whole)[STEPS - 1])

    def test_masters_in_bfloat16(self):
        """Written wide, they are the same numbers again; updates round by the same chance; FP32 masters go on from them."""
        changes = {"train__dtype": "bfloat16", "train__master_dtype": "bfloat16"}
        whole = self.undisturbed(**changes)
        run = self.resumed(whole, 4, **changes)
        self.assertEqual(losses(run), losses(whole))
        self.assert_same_checkpoint(run, whole, STEPS)
        shutil.rmtree(self.directory / "on4")
        wide = self.resumed(whole, 4, train__dtype="bfloat16")
        self.assertEqual([losses(wide)[step] for step in range(HALF)], [losses(whole)[step] for step in range(HALF)])
        self.assertNotEqual(losses(wide)[STEPS - 1], losses(whole)[STEPS - 1])

    def test_a_checkpoint_whose_saving_never_ended_is_told_of(self):
        whole = self.undisturbed()
        shutil.copytree(whole, self.directory / "killed")
        unfinished = self.directory / "killed" / "checkpoints" / f"step-{STEPS}"
        (unfinished / "manifest.json").unlink()
        run = self.config("killed", train__steps=STEPS, checkpoint__every=HALF)
        outcome = self.train("killed", 4, "--resume", "auto")
        self.assertIn(f"step-{STEPS} is passed over: it has no manifest.json", outcome.stderr)
        self.assertEqual(losses(run), losses(whole))

    def test_a_loss_far_above_a_guess_is_told_of(self):
        self.config("far", train__steps=STEPS, optimizer__lr=20)
        outcome = self.train("far", 4)
        self.assertRegex(outcome.stderr, r"step \d+ has a loss of .* optimizer.lr = 20 is probably too high")

    def test_a_measured_calibration_is_kept(self):
        whole = self.undisturbed(parallel__calibration="auto", parallel__select="best")
        calibration = (whole / "calibration.json").read_bytes()
        run = self.resumed(whole, 4, parallel__calibration="auto", parallel__select="best")
        self.assertEqual((run / "calibration.json").read_bytes(), calibration)
        self.assertEqual([record["strategy"] for record in records(run)],
                         [record["strategy"] for record in records(whole)])
        self.assertEqual(losses(run), losses(whole))

    def test_other_numbers_of_ranks_in_float64(self):
        whole = self.undisturbed(train__dtype="float64")
        for ranks in (2, 1, 5):
            with self.subTest(ranks=ranks):
                run = self.resumed(whole, ranks, train__dtype="float64")
                self.assert_close_losses(run, whole, 1e-11, 1e-11)
                self.assert_close_checkpoint(run, whole, STEPS, 1e-11)

    def test_a_run_with_a_head(self):
        """Labels of texts, and pairs of texts, go on where they were, on as many ranks and on fewer."""
        write_head_corpora(self.directory)
        for head in HEADS:
            with self.subTest(head=head["head__kind"]):
                whole = self.undisturbed(train__dtype="float64", **head)
                for ranks in (4, 2):
                    run = self.resumed(whole, ranks, train__dtype="float64", **head)
                    self.assert_close_losses(run, whole, 1e-11, 1e-9)
                    self.assert_close_checkpoint(run, whole, STEPS, 1e-10)
                    shutil.rmtree(run)

    def test_fewer_ranks_in_float32(self):
        whole = self.undisturbed()
        run = self.resumed(whole, 2)
        self.assert_close_losses(run, whole, 1e-5, 1e-4)
        self.assert_close_checkpoint(run, whole, STEPS, 1e-4)

    def test_saves_behind_training_are_those_of_a_run_that_waits(self):
        whole = self.undisturbed()
        mirror = self.directory / "mirror"
        run = self.config("behind", train__steps=STEPS, checkpoint__every=1, checkpoint__async=True,
                          checkpoint__mirror=str(mirror))
        outcome = self.train("behind", 4)
        self.assertRegex(outcome.stderr, rf"saved checkpoint after {STEPS} steps: .* for which the run waited")
        self.assertEqual(losses(run), losses(whole))
        self.assert_same_checkpoint(run, whole, STEPS)
        self.assertEqual(files_of(mirror / f"step-{STEPS}"), files_of(run / "checkpoints" / f"step-{STEPS}"))
        shutil.rmtree(run / "checkpoints")
        outcome = self.train("behind", 4, "--resume", "auto")
        self.assertIn(f"resuming from {mirror / f'step-{STEPS}'}", outcome.stderr)


class Folders(FromTheMiddle):
    """A run that goes through a Hugging Face folder and back in its middle."""

    def test_an_exported_optimizer_goes_on_bitwise(self):
        whole = self.undisturbed()
        for dtype in ("float32", "bfloat16"):
            with self.subTest(dtype=dtype):
                self.sluice("export", str(whole / "checkpoints" / f"step-{HALF}"), "--out", dtype, "--dtype", dtype, "--optimizer")
                self.sluice("import", dtype, "--out", f"from_{dtype}")
                name = f"on_{dtype}"
                run = self.config(name, train__steps=STEPS, checkpoint__every=HALF)
                self.train(name, 4, "--resume", f"from_{dtype}")
                self.assertEqual(losses(run), {step: losses(whole)[step] for step in range(HALF, STEPS)})
                self.assert_same_checkpoint(run, whole, STEPS)

    def test_a_state_that_names_no_data_goes_on_behind_as_many_steps(self):
        whole = self.undisturbed()
        self.sluice("export", str(whole / "checkpoints" / f"step-{HALF}"), "--out", "folder", "--optimizer")
        state = self.directory / "folder/optimizer/state.json"
        state.write_text(json.dumps({"schema": "sluice.optimizer/1", "step": HALF}))
        self.sluice("import", "folder", "--out", "imported")
        run = self.config("on", train__steps=STEPS)
        outcome = self.train("on", 4, "--resume", "imported")
        self.assertIn(f"the data go on as behind the first {HALF} steps", outcome.stderr)
        self.assertEqual(losses(run), {step: losses(whole)[step] for step in range(HALF, STEPS)})


def files_of(step):
    """{name: content} of a checkpoint's files."""
    return {str(path.relative_to(step)): path.read_bytes() for path in step.rglob("*") if path.is_file()}


class Processes(TestCase):
    def test_changing_strategies_equal_one_rank_in_float64(self):
        common = {"train__dtype": "float64", "train__steps": 20, "checkpoint__every": 20}
        four = self.config("four", **common)
        one = self.config("one", **{**common, "parallel__strategies": ["<1,1,1>"]})
        self.train("four", 4)
        self.train("one", 1)
        self.assert_close_losses(four, one, 1e-11, 1e-11)
        self.assert_close_checkpoint(four, one, 20, 1e-11)

    def test_lanes_equal_one_rank_in_float64(self):
        common = {"train__dtype": "float64", "train__steps": 20, "checkpoint__every": 20,
                  "data__context_length": 320, "data__validation_fraction": 0.1, "train__eval_every": 10}
        write_corpus(self.directory / "corpus", make_documents(longest=320))
        lanes = self.config("lanes", **common, parallel__strategies=["<1,1,4>", "<2,1,2>", "<1,2,2>", "4x<1,1,1>"])
        one = self.config("one", **common, parallel__strategies=["<1,1,1>"])
        self.train("lanes", 4)
        self.train("one", 1)
        self.assert_close_losses(lanes, one, 1e-11, 1e-11)
        self.assert_close_checkpoint(lanes, one, 20, 1e-11)
        sent = {}
        for record in records(lanes):
            if "cp_ep_bytes" in record:
                sent[record["strategy"]] = sent.get(record["strategy"], 0) + record["cp_ep_bytes"]
        # Every strategy is taken five times; batches of short sequences stay whole.
        self.assertGreater(sent["1x<1,1,4>"], 0)
        self.assertGreater(sent["1x<1,2,2>"], 0)
        self.assertEqual(sent["4x<1,1,1>"], 0)


    def test_auto_may_propose_lanes(self):
        write_corpus(self.directory / "corpus", make_documents(longest=320))
        run = self.config("auto", data__context_length=320, parallel__strategies="auto", parallel__max_cp=4,
                          parallel__select="best")
        self.train("auto", 4)
        self.assertEqual(len(losses(run)), 8)


class Stop(TestCase):
    def test_sigterm_to_the_launcher_saves_and_exits_0(self):
        self.stop(lambda process: terminate(process.pid))

    def test_sigterm_to_one_rank_saves_and_exits_0(self):
        self.stop(lambda process: terminate(rank_processes(process.pid)[2]))

    def test_a_reader_of_the_log_that_is_gone_stops_nothing(self):
        self.stop(lambda process: (process.stderr.close(), process.stdout.close(), terminate(process.pid)))

    def test_an_evaluation_that_the_stop_left_out_is_made_up(self):
        self.stop(lambda process: terminate(process.pid), train__eval_every=1, data__validation_fraction=0.1)
        evaluations = [[record for record in records(self.directory / name) if "validation_loss" in record]
                       for name in ("run", "whole")]
        self.assertEqual(*evaluations)

    def stop(self, tell, **changes):
        """Without checkpoint.every, the signal alone makes a checkpoint of an agreed step."""
        # A rate that doesn't depend on train.steps, so that another end makes the same run.
        common = {"optimizer__decay": "constant", **changes}
        run = self.config("run", train__steps=100_000, **common)
        process = self.start_train("run", 4)
        self.wait_for_step(run, 3, process)
        tell(process)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        last = max(losses(run))
        self.assertEqual(committed_steps(run), [last + 1], str(outcome))

        steps = last + 4
        for name, arguments in (("run", ["--resume", "auto"]), ("whole", [])):
            self.config(name, train__steps=steps, checkpoint__every=steps, **common)
            self.train(name, 4, *arguments)
        self.assertEqual(losses(run), losses(self.directory / "whole"))
        self.assert_same_checkpoint(run, self.directory / "whole", steps)


if __name__ == "__main__":
    main()
