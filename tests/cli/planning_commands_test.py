"""lengths, propose, plan and inspect for a cluster that nobody has: no run configuration, no libtorch."""

import json
import random
import re
import subprocess
import unittest
import xml.etree.ElementTree
from pathlib import Path

from commands import HANG_S, SLUICE, CommandTest, call

CONTEXT = 8192
TOKENS = 40_000


class PlanningCommands(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lengths = cls.folder / "lengths.txt"
        numbers = random.Random(5)
        lengths = [min(40_000, 1 + int(numbers.paretovariate(0.9) * 60)) for _ in range(2000)]
        cls.lengths.write_text("# tokens\n" + "\n".join(map(str, lengths)) + "\n")
        cls.inputs = ("--gpus", 16, "--model", "llama-7b", "--lengths", cls.lengths, "--context", CONTEXT,
                      "--tokens-per-step", TOKENS)
        cls.strategies = cls.folder / "strategies.json"
        cls.done("propose", *cls.inputs, "--max", 3, "--out", cls.strategies)

    def refused(self, status, message, *arguments):
        """Ends with `status` and one line that matches `message`; writes nothing but that."""
        before = sorted(self.folder.iterdir())
        result = call(*arguments)
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertRegex(lines[0], message)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_mixture_of_experts_is_counted_and_said_to_be(self):
        folder = self.folder / "experts"
        folder.mkdir()
        config = {"model_type": "jetmoe", "hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 16,
                  "num_hidden_layers": 8, "num_key_value_heads": 8, "num_experts_per_tok": 2,
                  "num_local_experts": 8, "vocab_size": 32000}
        (folder / "config.json").write_text(json.dumps(config))
        inputs = ("--gpus", 16, "--lengths", self.lengths, "--context", CONTEXT, "--tokens-per-step", TOKENS)
        planned = call("plan", "--model", folder, *inputs, "--strategies", "16x<1,1,1>", "--json")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertRegex(planned.stderr, "jetmoe is counted, not computed: .* parameters, .* passed by a token")
        self.assertGreater(json.loads(planned.stdout)["estimated_ns"], 0)
        divided = self.done("plan", "--model", folder, *inputs, "--strategies", "1x<1,1,16,16,8>", "--explain")
        self.assertIn("cp16,fsdp16,ep8", divided)
        self.assertRegex(divided, r"memory: \d+\.\d\d GiB per device, on the fullest\n")
        refused = call("plan", "--model", folder, *inputs, "--strategies", "1x<1,1,16,16,16>")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("16 lanes do not divide 8 experts: choose one of 1, 2, 4, 8", refused.stderr)
        compared = self.done("simulate", "--model", folder, *inputs, "--steps", 2, "--strategies", "16x<1,1,1>",
                             "--out", self.folder / "simulated")
        facts = json.loads((self.folder / "simulated" / "simulation.json").read_text())["facts"]
        self.assertIn("counted from its config.json's fields", facts["calibration"], compared)
        shown = self.done("inspect", self.folder / "simulated" / "simulation.json")
        self.assertRegex(shown, r"simulation of 16 ranks of a800x8\nsystem +mean step +as measured +tokens/s.*\nSluice ")
        self.assertRegex(self.done("inspect", folder), "model_type jetmoe is counted, not computed: .* parameters .*, "
                         "heads 16 .*, 8 experts of 3584, 2 a token, vocabulary 32000\n  plans alone\n")
        latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                  "first_k_dense_replace": 1}
        (folder / "config.json").write_text(json.dumps(config | latent))
        self.assertRegex(self.done("inspect", folder), "heads 16 of 192 .values 128., keys and values from a latent "
                         "vector of 512, ffn 3584, 8 experts of 3584, 2 a token, vocabulary 32000\n  plans alone\n")
        (folder / "config.json").write_text(json.dumps(config | {"ssm_state_size": 16}))
        self.refused(2, 'config.json: ssm_state_size is 16, a key whose costs', "plan", "--model", folder, *inputs)

    def test_layouts_that_serve_keep_time_and_memory(self):
        given = ("plan", "--serving", "--model", "llama-7b", "--cluster", "h100x8", "--gpus", 8, "--tpot-ms", 40)
        served = json.loads(self.done(*given, "--json"))
        best = served["layouts"][0]
        self.assertEqual((served["gpus"], served["input_len"], best["kind"]), (8, 512, "pipelines"))
        for layout in served["layouts"]:
            self.assertLessEqual(layout["tokens_per_s"], best["tokens_per_s"])
            if layout["sequences"]:
                self.assertLessEqual(layout["tpot_ms"], 40)
                self.assertLessEqual(layout["bytes"], 81559 * 2**20)
        slower = json.loads(self.done(*given[:-1], 400, "--json"))["layouts"][0]
        self.assertGreaterEqual(slower["tokens_per_s"], best["tokens_per_s"])
        table = self.done(*given[:-1], 0.01)
        self.assertRegex(table, "one text's tokens are .* apart, more than 10.00 us")
        self.assertRegex(self.done("plan", "--serving", "--model", "llama-32b", "--cluster", "a100x8", "--gpus", 1),
                         "one text needs .* of a device's")
        self.refused(2, "--batches excludes --serving", "plan", "--serving", "--batches", 3, "--model", "llama-7b")
        self.refused(2, "--input-len requires --serving", "plan", *self.inputs, "--input-len", 3)
        self.refused(2, "calibration a800-7b is a table of training times", "plan", "--serving", "--calibration", "a800-7b")

    def test_experts_apart_from_attention_are_planned(self):
        folder = self.folder / "apart"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({
            "model_type": "granitemoe", "hidden_size": 4096, "intermediate_size": 4096, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 16,
            "vocab_size": 32000}))
        table = self.done("plan", "--serving", "--model", folder, "--cluster", "h100x8", "--gpus", 24, "--disaggregated-prefill")
        self.assertRegex(table, r"attention \d+x<\d>, experts \d+x<\d>, \d micro-batch")
        self.assertRegex(table, r"\d+x<\d> that divide experts")
        self.assertIn("planned, not run", table)

    def test_wrong_usage_is_refused_in_a_line(self):
        self.refused(2, "^sluice: there is no command 'proposse': did you mean 'propose'", "proposse")
        self.refused(2, "^sluice: there is no command 'x': known are corpus, lengths, propose", "x")
        self.refused(2, "^sluice: .*--gpus = x is no number.*digits", "plan", "--gpus", "x")
        self.refused(2, "^sluice: .*--bogus.*--help", "plan", "--bogus")
        self.refused(2, "^sluice: .*subcommand.*--help")
        self.assertIn("propose", call("--help").stdout)

    def test_a_proposal_holds_the_context_and_names_its_inputs(self):
        proposal = json.loads(self.strategies.read_text())
        self.assertEqual((proposal["schema"], proposal["context_length"]), ("sluice.strategies/1", CONTEXT))
        strategies = proposal["strategies"]
        self.assertLessEqual(len(strategies), 3)
        self.assertGreaterEqual(strategies[0]["max_len"], CONTEXT)
        self.assertAlmostEqual(sum(each["frequency"] for each in strategies), 1)
        for each in strategies:
            self.assertLessEqual(each["gpus"], 16)
            self.assertGreater(each["mean_estimated_ns"], 0)
            least, most = each["longest"]
            self.assertLessEqual(least, most)
            self.assertLessEqual(most, min(CONTEXT, each["max_len"]))
            self.assertEqual(most > 0, each["frequency"] > 0)
            self.assertGreater(each["tokens_per_s"], 0)
            self.assertGreater(each["peak_bytes"], 2**30)
            self.assertLessEqual(each["peak_bytes"], proposal["inputs"]["cluster"]["device_memory_bytes"])
        inputs = proposal["inputs"]
        self.assertEqual((inputs["gpus"], inputs["model"], inputs["tokens_per_step"], inputs["method"]),
                         (16, "llama-7b", TOKENS, "ours"))
        self.assertEqual((inputs["lengths"]["count"], inputs["cluster"]["name"]), (2000, "a800x8"))

    def test_equal_inputs_propose_equal_bytes(self):
        again = self.folder / "again.json"
        self.done("propose", *self.inputs, "--max", 3, "--out", again)
        self.assertEqual(again.read_bytes(), self.strategies.read_bytes())
        again.unlink()

    def test_a_proposal_is_a_table_for_people(self):
        table = self.done("propose", *self.inputs, "--max", 2)
        self.assertRegex(table, r"steps +longest sequences +GPUs +max sequence length +mean step( +as measured)? +tokens/s +MFU +GiB per device +strategy")
        self.assertRegex(table, r"\d %  +[\d,]+( to [\d,]+)?  +16  +[\d,]+  .*cp\d")
        self.assertIn("tokens/s", self.done("inspect", self.strategies))

    def test_a_plan_covers_its_batch(self):
        out = self.folder / "plan.json"
        self.done("plan", *self.inputs, "--strategies", self.strategies, "--step", 2, "--out", out)
        plan = json.loads(out.read_text())
        out.unlink()
        self.assertEqual(plan["step"], 2)
        self.assertLessEqual(sum(each["length"] for each in plan["sequences"]), TOKENS)
        self.assertLessEqual(max(each["length"] for each in plan["sequences"]), CONTEXT)
        self.assertNotIn("planning_ns", plan)
        pieces = [piece["sequence"] for pipeline in plan["pipelines"] for lane in pipeline["lanes"]
                  for micro_batch in lane for piece in micro_batch["pieces"]]
        self.assertEqual(set(pieces), set(range(len(plan["sequences"]))))

    def test_batches_are_the_steps_one_after_the_other(self):
        plan = ("plan", *self.inputs, "--strategies", self.strategies)
        lines = [json.loads(line) for line in self.done(*plan, "--batches", 3, "--step", 1).splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3])
        self.assertTrue(all(line.pop("planning_ns") > 0 for line in lines))
        self.assertEqual(lines[1], json.loads(self.done(*plan, "--step", 2, "--json")))
        out = self.folder / "plans.jsonl"
        self.assertIn("tokens/s", self.done(*plan, "--batches", 2, "--out", out))
        self.assertEqual(len(out.read_text().splitlines()), 2)
        out.unlink()

    def test_all_documents_can_be_one_batch(self):
        batch = self.folder / "batch.txt"
        batch.write_text("4096\n100\n200\n300\n")
        plan = json.loads(self.done("plan", "--gpus", 8, "--model", "llama-7b", "--lengths", batch,
                                    "--tokens-per-step", 0, "--strategies", "1x<4,1,1> + 4x<1,1,1>",
                                    "--strategies", "2x<4,1,1>", "--json"))
        batch.unlink()
        self.assertEqual(sorted(each["length"] for each in plan["sequences"]), [100, 200, 300, 4096])
        self.assertEqual(len(plan["candidates"]), 2)

    def test_methods_plan_the_same_batch(self):
        without_lanes = self.folder / "without_lanes.json"
        self.done("propose", *self.inputs, "--max", 3, "--max-cp", 1, "--out", without_lanes)
        plan = ("plan", *self.inputs, "--strategies", without_lanes, "--json", "--method")
        ours, paper = (json.loads(self.done(*plan, method)) for method in ("ours", "paper"))
        self.assertEqual(ours["sequences"], paper["sequences"])
        self.assertLessEqual(ours["lower_bound_ns"], paper["estimated_ns"])
        without_lanes.unlink()

    def test_explanations_name_choice_rival_last_pipeline_and_bound(self):
        told = self.done("plan", *self.inputs, "--strategies", self.strategies, "--explain")
        for part in (r"The plan takes .*, estimated at .*: the least of \d candidates", r"\(taken\)",
                     r"Last to end, at .*, is the pipeline [a-z0-9,]+ on rank", r"No schedule of these candidates takes less",
                     r"bounds? it: "):
            with self.subTest(part):
                self.assertRegex(told, part)

    def test_no_alternative_is_shown_cheaper_than_the_plan(self):
        lengths = Path(__file__).parents[2] / "bench" / "data"
        for model in ("llama-7b", "llama-13b", "llama-32b"):
            for corpus in ("wikipedia", "code", "system"):
                with self.subTest(model=model, corpus=corpus):
                    told = self.done("plan", "--gpus", 16, "--model", model, "--lengths",
                                     lengths / f"{corpus}_lengths.txt", "--context", 32768, "--explain")
                    self.assertRegex(told, "The plan takes .*: the least of [2-9] candidates")
                    table = re.search(r"\n  estimated +more.*\n((?:.+\n)+)", told).group(1).splitlines()
                    self.assertIn("(taken)", table[0])
                    self.assertNotIn("-", " ".join(line.split("<")[0] for line in table))

    def test_what_cannot_be_written_is_known_before_the_work(self):
        (self.folder / "file").write_text("")
        (self.folder / "folder").mkdir()
        # Lengths that no command would get through in the time of a test.
        inputs = ("--gpus", 64, "--model", "llama-7b", "--lengths", self.folder / "absent.txt")
        for command in (("propose", *inputs), ("plan", *inputs), ("plan", *inputs, "--batches", 3),
                        ("lengths", self.folder / "absent.txt")):
            for out, fault in {"absent/out.json": "absent is not there", "file/out.json": "file is no folder",
                               "folder": "folder is a folder"}.items():
                with self.subTest(command=command[0], out=out):
                    self.refused(2, f"--out: .*{fault}", *command, "--out", self.folder / out)
        self.refused(2, "--svg: .*is not there", "lengths", self.folder / "absent.txt", "--svg", self.folder / "no" / "x.svg")
        for command in (("simulate", *inputs), ("corpus", "build", self.folder / "absent.txt"),
                        ("corpus", "merge", self.folder / "absent")):
            self.refused(2, "--out: .*file is no folder", *command, "--out", self.folder / "file" / "out")
        self.refused(2, "--out: .*is not there", "report", self.folder, "--out", self.folder / "no" / "report.html")
        (self.folder / "file").unlink()
        (self.folder / "folder").rmdir()

    def test_lengths_are_drawn_and_summarised(self):
        svg, out = self.folder / "lengths.svg", self.folder / "lengths.json"
        shown = self.done("lengths", self.lengths, "--svg", svg, "--out", out)
        self.assertIn("█", shown)
        self.assertIn("prefers-color-scheme", svg.read_text())
        self.assertTrue(xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg"))
        self.assertEqual(json.loads(out.read_text())["count"], 2000)
        inputs = replaced(replaced(self.inputs, "--lengths", out), "--context", 512)
        again = self.done("plan", *inputs, "--strategies", "8x<2,1,1>", "--json")
        self.assertEqual(max(each["length"] for each in json.loads(again)["sequences"]), 512)
        svg.unlink()
        out.unlink()

    def test_schemes_are_written_and_shown_by_their_degrees(self):
        numbers, named = (json.loads(self.done("plan", *self.inputs, "--strategies", text, "--json"))
                          for text in ("4x<2,1,1> + 1x<1,1,8,8>", "4x tp2 + cp8,fsdp8"))
        self.assertEqual(named, numbers)
        self.assertEqual(named["strategy"], "4x<2,1,1> + 1x<1,1,8,8>", "files have the numbers")
        file = self.folder / "named.txt"
        file.write_text("4xtp2 + fsdp8,cp8  # in any order\n")
        self.assertEqual(json.loads(self.done("plan", *self.inputs, "--strategies", file, "--json")), numbers)
        self.assertIn("strategy 4x tp2 + cp8,fsdp8, predicted", self.done("plan", *self.inputs, "--strategies", file))
        before = json.dumps(numbers).replace("sluice.plan/2", "sluice.plan/1").replace('"micro_batch"', '"ring"')
        shown = [self.done("inspect", self.write("plan.json", content)) for content in (json.dumps(numbers), before)]
        self.assertEqual(shown[0], shown[1])
        self.refused(2, "'dp' is no degree", "plan", *self.inputs, "--strategies", "tp2 + dp4")
        self.refused(2, "fsdp stands there twice", "plan", *self.inputs, "--strategies", "cp8,fsdp8,fsdp8")
        for path in (file, self.folder / "plan.json"):
            path.unlink()

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content)
        return path

    def test_wrong_inputs_end_with_2_and_a_way_out(self):
        files = {"empty.txt": "", "word.txt": "12\nmany\n", "negative.txt": "12\n13\n-1\n", "short.txt": "1\n0\n",
                 "large.txt": "8x<1,1,1>\n5x<4,1,1>\n", "none.json": "{}"}
        for name, content in files.items():
            (self.folder / name).write_text(content)
        cases = [
            (("--cluster", "a800x9"), "'a800x9'.*did you mean 'a800x8'"),
            (("--calibration", "a800-7c"), "'a800-7c'.*analytic"),
            (("--model", "llama-8b"), "'llama-8b'.*llama-7b"),
            (("--lengths", self.folder / "empty.txt"), "empty.txt holds no lengths"),
            (("--lengths", self.folder / "short.txt"), "no document has 2 tokens"),
            (("--lengths", self.folder / "word.txt"), "word.txt:2: 'many'"),
            (("--lengths", self.folder / "negative.txt"), "negative.txt:3: '-1'"),
            (("--lengths", self.folder / "absent.txt"), "absent.txt"),
            (("--context", 1), "context_length is 1.*2 or more"),
            (("--gpus", -1), "gpus is -1"),
        ]
        for arguments, message in cases:
            for command in ("propose", "plan"):
                with self.subTest(message, command=command):
                    given = [command, *self.inputs]
                    for flag, value in zip(arguments[::2], arguments[1::2]):
                        given = replaced(given, flag, value)
                    self.refused(2, message, *given, "--out", self.folder / "out.json")
        for strategies, message in (("9x<2,1,1>", "18.*16"), ("<3,1,1>", "tp 3"),
                                    (self.folder / "large.txt", "large.txt:2: .*20.*16"),
                                    (self.folder / "none.json", "none.json"),
                                    ("strategies", "is no file and no strategy")):
            with self.subTest(message):
                self.refused(2, message, "plan", *self.inputs, "--strategies", strategies)
        self.refused(2, "method is 'best'", "plan", *self.inputs, "--method", "best")
        self.refused(2, "'exact'.*ours or paper", "propose", *self.inputs, "--method", "exact")
        self.refused(2, "max_cp is 2.*no lanes", "propose", *self.inputs, "--method", "paper", "--max-cp", 2)
        for name in files:
            (self.folder / name).unlink()

    def test_a_calibration_of_another_model_is_refused(self):
        self.refused(2, "of another model than llama-7b", "plan", *self.inputs, "--calibration", "a800-13b")

    def test_inspect_says_who_measured_a_rate(self):
        printed = self.done("inspect", "h100x8", "a800x8", "l40sx8", "local", "a800-7b", "h100-7b")
        for expected in ("h100x8: cluster preset, 8 devices", "FlashAttention-3 (arXiv 2407.08608)", "FlashAttention-2 (arXiv 2307.08691)",
                         "stas00/ml-engineering", "hao-ai-lab/DistCA", "OpenPipe/ART issue 854", "assumed, half of the data sheet", "assumed of a core",
                         "a800-7b: calibration, nodes of eight A800", "h100-7b: calibration, nodes of eight H100"):
            self.assertIn(expected, printed)
        self.refused(2, "h100x9 does not exist", "inspect", "h100x9")

    def test_shipped_fits_bring_model_and_links(self):
        proposal = json.loads(self.done("propose", "--gpus", 16, "--calibration", "a800-7b", "--lengths", self.lengths,
                                        "--context", CONTEXT, "--max", 2, "--json"))
        self.assertIn("a800-7b", proposal["inputs"]["calibration"]["name"])

    def test_what_cannot_be_written_is_not_begun(self):
        out = self.folder / "absent" / "out.json"
        for command in (("propose", *self.inputs), ("plan", *self.inputs, "--batches", 2)):
            with self.subTest(command[0]):
                self.refused(2, "absent is not there: make it", *command, "--out", out)

    def test_a_result_that_is_not_written_whole_ends_with_1(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([SLUICE, "lengths", str(self.lengths)], stdout=full, stderr=subprocess.PIPE,
                                    text=True, timeout=HANG_S)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "^sluice: cannot write all of the result to standard output")

    def test_what_does_not_fit_ends_with_3(self):
        long = self.folder / "long.txt"
        long.write_text("30000000\n")
        given = ("--gpus", 1, "--model", "llama-32b", "--lengths", long)
        self.refused(3, "no scheme .* holds the model on 1 rank: use more", "propose", *given)
        self.refused(3, "holds context_length 30000000: the longest that fits is", "propose", *replaced(given, "--gpus", 64))
        self.refused(3, r"30,000,000 tokens", "plan", *given, "--strategies", "<1,1,1>")
        long.unlink()


def replaced(arguments, flag, value):
    """`arguments` with one more flag, or another value of it."""
    arguments = list(arguments)
    if flag not in arguments:
        return [*arguments, flag, value]
    arguments[arguments.index(flag) + 1] = value
    return arguments


if __name__ == "__main__":
    unittest.main()
