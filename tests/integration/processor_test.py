"""Training on other processors than this one: the instruction sets that libtorch and oneDNN can be held to, thread
counts, and the types that some processors compute with instructions of their own.
"""

import math
import pathlib

from harness import TestCase, environment, losses, main

STEPS = 8
# Wide enough that oneDNN computes BF16 products wherever the processor has instructions for them.
MODEL = {"model__hidden": 64, "model__ffn_hidden": 160, "train__steps": STEPS}
STRATEGY = ["<1,2,1>"]


def settings():
    """Environments that hold the libraries to less than this processor has: as older ones compute."""
    words = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    found = [{}, {"ATEN_CPU_CAPABILITY": "default"}]
    found += [{"ATEN_CPU_CAPABILITY": "avx2"}] if "avx2" in words else []
    # oneDNN takes the best of these that there is.
    found += [{"ONEDNN_MAX_CPU_ISA": isa} for isa in ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16")]
    return found


class Processors(TestCase):
    def trained(self, run, ranks=2, env=None, **changes):
        """The losses of a run, in the order of its steps."""
        directory = self.config(run, **{"parallel__strategies": STRATEGY, **MODEL, **changes})
        self.train(run, ranks, env=environment(**(env or {})))
        found = [loss for _, (loss, _) in sorted(losses(directory).items())]
        self.assertEqual(len(found), STEPS)
        self.assertTrue(all(map(math.isfinite, found)), found)
        return found

    def assert_near(self, found, expected, tolerance):
        for step, (loss, other) in enumerate(zip(found, expected, strict=True)):
            self.assertAlmostEqual(loss, other, delta=tolerance * other, msg=f"step {step}")

    def test_bfloat16_learns_as_float32_does(self):
        expected = self.trained("float32")
        for number, env in enumerate(settings()):
            with self.subTest(env=env):
                found = self.trained(f"bfloat16-{number}", env=env, train__dtype="bfloat16")
                self.assert_near(found, expected, 0.02)
                self.assertLess(found[-1], 0.95 * found[0])

    def test_float64_does_not_know_the_processor(self):
        expected = self.trained("float64", train__dtype="float64")
        for number, env in enumerate(settings()[1:3]):
            with self.subTest(env=env):
                self.assert_near(self.trained(f"other-{number}", env=env, train__dtype="float64"), expected, 1e-11)

    def test_float64_does_not_know_the_number_of_threads(self):
        expected = self.trained("one", train__dtype="float64", train__threads=1)
        self.assert_near(self.trained("three", train__dtype="float64", train__threads=3), expected, 1e-11)


if __name__ == "__main__":
    main()
