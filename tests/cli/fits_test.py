"""sluice fits: an answer, its settings and its bytes, and the way out where the answer is no."""

import json
import unittest

from commands import CommandTest, call

MILLION = 1 << 20


class Fits(CommandTest):
    def answer(self, *arguments, status=0):
        result = call("fits", *arguments, "--json")
        self.assertEqual(result.returncode, status, result.stderr)
        return json.loads(result.stdout), result.stderr

    def test_a_million_tokens_of_7b_fit_eight_gpus_with_settings(self):
        answer, _ = self.answer("--model", "llama-7b", "--gpus", 8, "--context", "1M")
        self.assertTrue(answer["fits"])
        self.assertEqual(answer["context_tokens"], MILLION)
        fit = answer["fit"]
        self.assertGreaterEqual(fit["longest_tokens"], MILLION)
        self.assertTrue(fit["settings"])
        self.assertLessEqual(fit["device_bytes"]["all"], fit["device_bytes"]["usable"])
        parts = [fit["device_bytes"][part] for part in ("owned", "computing", "activations")]
        self.assertEqual(sum(parts), fit["device_bytes"]["all"])
        text = self.done("fits", "--model", "llama-7b", "--gpus", 8, "--context", "1M")
        for setting in fit["settings"]:
            self.assertIn(setting, text)
        self.assertRegex(text, r"GiB per GPU +\d+\.\d of \d+\.\d")
        self.assertRegex(text, r"strategy +[a-z0-9,]+\n")

    def test_propose_plan_and_simulate_choose_the_settings_by_themselves(self):
        lengths = self.folder / "one.txt"
        lengths.write_text(f"{MILLION}\n")
        inputs = ("--gpus", 8, "--model", "llama-7b", "--lengths", lengths, "--tokens-per-step", MILLION)
        self.done("propose", *inputs)
        plan = json.loads(self.done("plan", *inputs, "--json"))
        policies = [part.get("memory") for pipeline in plan["pipelines"] for lane in pipeline["lanes"] for part in lane]
        self.assertTrue(all(policies), policies)
        self.done("simulate", *inputs, "--steps", 1)

    def test_contexts_are_digits_or_have_a_suffix(self):
        for given, tokens in (("131072", 131072), ("128K", 131072), ("128k", 131072), ("1m", MILLION)):
            self.assertEqual(self.answer("--model", "qwen3-0.6b", "--gpus", 8, "--context", given)[0]["context_tokens"],
                             tokens)
        for given in ("", "K", "12G", "-5", "1", "0", "1.5M", "9999999M", "99999999999999999999"):
            result = call("fits", "--model", "qwen3-0.6b", "--gpus", 8, "--context", given)
            self.assertEqual((result.returncode, result.stdout), (2, ""), given)
            self.assertIn("--context", result.stderr)

    def test_what_does_not_fit_is_told_with_the_way_out(self):
        arguments = ("--model", "qwen3-30b-a3b", "--gpus", 8, "--cluster", "h100x8", "--context", "1M", "--optimizer",
                     "adamw_8bit")
        answer, said = self.answer(*arguments, status=3)
        self.assertFalse(answer["fits"])
        self.assertIn('train.master_dtype = "bfloat16"', answer["otherwise"]["settings"])
        self.assertIn('train.master_dtype = "bfloat16"', said)
        self.assertEqual(said.count("\n"), 1)
        narrow, _ = self.answer(*arguments, "--master-dtype", "bfloat16")
        self.assertTrue(narrow["fits"])

    def test_fewer_lanes_and_no_shared_parameters_hold_less(self):
        arguments = ("--model", "qwen3-8b", "--gpus", 8, "--cluster", "h100x8", "--context", "64K")
        longest = self.answer(*arguments)[0]["fit"]["longest_tokens"]
        self.assertGreaterEqual(longest, 1 << 16)
        alone, said = self.answer(*arguments, "--max-cp", 1, "--no-fsdp", status=call(
            "fits", *arguments, "--max-cp", 1, "--no-fsdp").returncode)
        self.assertNotIn("fsdp", json.dumps(alone.get("fit") or {}), said)

    def test_wrong_values_are_named(self):
        known = ("--model", "llama-7b")
        for arguments in (("--optimizer", "sgd", *known), ("--master-dtype", "int8", *known), ("--max-cp", 0, *known),
                          ("--gpus", -1, *known), ("--model", "no-such-model")):
            result = call("fits", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertIn(str(arguments[1]), result.stderr)


if __name__ == "__main__":
    unittest.main()
