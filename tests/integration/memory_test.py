"""Memory policies through the program: training stays what it is, and the fullest rank takes the predicted bytes."""

import json

from harness import TestCase, losses, main, make_documents, records, write_corpus

RANKS = 2
CONTEXT = 512
POLICIES = {"keep": {"memory__recompute": "none", "memory__offload": 0.0},
            "recompute": {"memory__recompute": "full", "memory__offload": 0.0},
            "some": {"memory__recompute": "none", "memory__offload": 0.3},
            "all": {"memory__recompute": "none", "memory__offload": 1.0},
            "both": {"memory__recompute": "full", "memory__offload": 1.0}}
# Wide enough that activations matter beside everything that a process has.
MODEL = {"model__layers": 6, "model__hidden": 128, "model__ffn_hidden": 344, "model__vocab": 512}


class MemoryPolicies(TestCase):
    elastic = False
    def setUp(self):
        super().setUp()
        write_corpus(self.directory / "corpus", make_documents(count=100, longest=CONTEXT))

    def trained(self, strategy, **changes):
        """The losses of a short run and its steps' (measured, predicted) peaks; one run for all tests that ask for the same."""
        run = self.kept(self.train_shortly, strategy=strategy, **changes)
        steps = [record for record in records(run) if "loss" in record]
        return losses(run), [(step["peak_bytes"], step["predicted_peak_bytes"]) for step in steps], steps

    def train_shortly(self, strategy, **changes):
        run = self.config("run", **{"parallel__strategies": [strategy], "train__steps": 2,
                                    "data__context_length": CONTEXT, "data__tokens_per_step": 4 * CONTEXT,
                                    **MODEL, **changes})
        self.train("run", RANKS)
        return run

    def check(self, strategy, policies=POLICIES, rings=False, **changes):
        """Policies, "keep" first, on one strategy; plans may differ, so losses agree to rounding."""
        fullest, kept = None, None
        for policy in policies:
            memory = POLICIES[policy]
            with self.subTest(strategy=strategy, policy=policy):
                found, peaks, steps = self.trained(strategy, **memory, **changes)
                kept = kept or found
                for step, (loss, norm) in kept.items():
                    self.assertAlmostEqual(found[step][0], loss, delta=1e-5 * loss)
                    self.assertAlmostEqual(found[step][1], norm, delta=1e-4 * norm)
                for measured, predicted in peaks:
                    self.assertLessEqual(abs(measured - predicted), 0.05 * predicted, (measured, predicted))
                fullest = fullest or peaks[0][0]
                if policy != "keep":
                    self.assertLess(peaks[0][0], fullest)
                if rings:
                    self.assertGreater(sum(step["ring_bytes"] for step in steps), 0)

    def test_ranks_on_their_own(self):
        self.check("2x<1,1,1>")

    def test_tensor_parallel(self):
        self.check("<2,1,1>", ["keep", "both"])

    def test_stages(self):
        self.check("<1,2,1>", ["keep", "recompute", "all"])

    def test_lanes_that_share_parameters(self):
        self.check("<1,1,2,2>", ["keep"])

    def test_a_ring(self):
        # One sequence a step that no lane holds alone.
        write_corpus(self.directory / "corpus", [[(3 * i + 5 * j) % 64 for i in range(4 * CONTEXT)] for j in range(6)])
        self.check("<1,1,2>", ["keep", "recompute", "all"], rings=True, data__context_length=4 * CONTEXT)

    def test_moments_of_8_bits_take_as_much_less_as_is_predicted(self):
        peaks = {}
        for name in ("adamw", "adamw_8bit"):
            _, peaks[name], _ = self.trained("2x<1,1,1>", **POLICIES["keep"], **({} if name == "adamw" else {"optimizer__name": name}))
            for measured, predicted in peaks[name]:
                self.assertLessEqual(abs(measured - predicted), 0.05 * predicted, (name, measured, predicted))
        (wide, of_wide), (narrow, of_narrow) = (peaks[name][0] for name in ("adamw", "adamw_8bit"))
        self.assertLess(narrow, wide)
        self.assertAlmostEqual(wide - narrow, of_wide - of_narrow, delta=0.1 * (of_wide - of_narrow))

    def test_offloading_is_the_same_to_the_bit(self):
        # One lane, and micro-batches that are the same under either policy.
        kept, _, _ = self.trained("<2,1,1>", **POLICIES["keep"])
        for policy in ("some", "all"):
            self.assertEqual(self.trained("<2,1,1>", **POLICIES[policy])[0], kept)

    def test_traces_count_memory(self):
        traced = {"strategy": "<1,2,1>", **POLICIES["keep"], "log__trace_steps": [1]}
        _, peaks, _ = self.trained(**traced)
        measured, predicted = (self.memory(self.kept(self.train_shortly, **traced) / f"trace-1{suffix}.json")
                               for suffix in ("", "-predicted"))
        self.assertEqual(max(predicted.values()), peaks[1][1])
        for rank in range(RANKS):
            self.assertLess(0.2 * predicted[rank], measured[rank])
        self.assertLessEqual(max(measured.values()), peaks[1][0])

    def memory(self, file):
        """The most that a trace counts, by rank."""
        most = {}
        for event in json.loads(file.read_text())["traceEvents"]:
            if event["ph"] == "C" and event["name"] == "memory":
                most[event["pid"]] = max(most.get(event["pid"], 0), event["args"]["memory"])
        return most

    def test_auto_keeps_what_fits_and_saves_where_it_must(self):
        _, peaks, _ = self.trained("2x<1,1,1>", **POLICIES["keep"])
        roomy, auto, _ = self.trained("2x<1,1,1>")
        for (measured, predicted), (kept, expected) in zip(auto, peaks, strict=True):
            self.assertEqual(predicted, expected)
            self.assertAlmostEqual(measured, kept, delta=1e-3 * kept)  # the heap rounds blocks up, to what lies free
        tight_gib = 0.8 * peaks[0][1] / 2**30
        found, tight, _ = self.trained("2x<1,1,1>", memory__device_gib=tight_gib, memory__margin_gib=0.0)
        for step, (loss, _) in roomy.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-5 * loss)
        for measured, _ in tight:
            self.assertLess(measured, 1.05 * tight_gib * 2**30)


if __name__ == "__main__":
    main()
