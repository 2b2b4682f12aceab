"""Runs of a hybrid, attention beside recurrent layers and experts, are the same on other ranks, under other strategies, resumed
and with a rank lost: states, convolutions and experts know neither lanes nor epochs, whether experts are gathered or rows travel."""

import json
import os
import re
import signal

from harness import VOCABULARY, TestCase, committed_steps, losses, main, rank_processes, records, write_corpus

STEPS = 8
HALF = 4
CONFIG = {"model_type": "qwen3_next", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCABULARY,
          "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
          "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
          "tie_word_embeddings": True}
# Experts lie elsewhere from the sixth step on, with a copy on each lane.
PLACING = {"parallel__expert_placement": "load", "parallel__expert_placement_every": 1, "parallel__redundant_experts": 1}
STRATEGIES = ["<1,1,4>", "<2,1,2,2,2>", "<1,2,2>", "<1,1,4,4,2>", "<1,1,4,4,4>"]


class Hybrid(TestCase):
    def setUp(self):
        super().setUp()
        lengths = [600, 3, 90, 450, 2, 41, 600, 17]
        write_corpus(self.directory / "corpus",
                     [[(3 * i + 5 * j) % VOCABULARY for i in range(length)] for j, length in enumerate(lengths * 3)])
        (self.directory / "model").mkdir()
        (self.directory / "model/config.json").write_text(json.dumps(CONFIG))

    def config(self, run, strategies, **changes):
        """Of the folder's model, in FP64."""
        path = super().config(run, parallel__strategies=strategies, train__steps=STEPS, train__dtype="float64",
                              checkpoint__every=HALF, data__context_length=600, data__tokens_per_step=800,
                              parallel__exchange="cycle", parallel__gpus_per_node=2, **changes)
        toml = self.directory / f"{run}.toml"
        toml.write_text(re.sub(r"\[model\][^\[]*", '[model]\nhf = "model"\n', toml.read_text()))
        return path

    def test_other_ranks_and_strategies_and_a_resume(self):
        one = self.config("one", ["<1,1,1>"])
        self.train("one", 1)
        four = self.config("four", STRATEGIES, **PLACING)
        self.assertIn("experts are placed by their load", str(self.train("four", 4)))
        self.assert_close_losses(four, one, 1e-11, 1e-11)
        self.assertGreaterEqual(len({record["strategy"] for record in records(four)}), 3)
        self.assertGreater(sum(record["cp_ep_bytes"] for record in records(four)), 0)
        divided = [record for record in records(four) if re.search(r"<\d+,\d+,\d+,\d+,\d+>", record["strategy"])]
        self.assertTrue(divided)
        self.assertTrue(all(record["expert_load_imbalance"] >= 1 for record in divided))
        self.assert_close_checkpoint(four, one, STEPS, 1e-11)
        self.config("four", ["<1,1,3>", "<1,1,2,2,2> + <1,1,1>"])
        (self.directory / "four" / "checkpoints" / f"step-{STEPS}").rename(self.directory / "put-away")
        self.train("four", 3, "--resume", "auto")
        self.assertEqual(sorted(losses(four)), list(range(STEPS)))
        self.assert_close_losses(four, one, 1e-11, 1e-11)

    def test_a_lost_rank(self):
        one = self.config("one", ["<1,1,1>"])
        self.train("one", 1)
        run = self.config("lost", STRATEGIES, **PLACING)
        process = self.start_train("lost", 4)
        self.wait_for_step(run, 2, process)
        os.kill(rank_processes(process.pid)[2], signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertIn("membership 1", outcome.stderr)
        self.assertEqual(sorted(losses(run)), list(range(STEPS)))
        self.assert_close_losses(run, one, 1e-11, 1e-11)
        self.assertEqual(committed_steps(run)[-1], STEPS)


if __name__ == "__main__":
    main()
