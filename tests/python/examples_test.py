"""The examples, between stand-ins of the frameworks that they are made for."""

import contextlib
import io
import pathlib
import random
import re
import sys
import unittest

import numpy as np
import sluice

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "examples"))
import megatron_data_loader  # noqa: E402
import verl_balance  # noqa: E402


def lengths_of(count, seed=1):
    """Many short ones, few long ones."""
    generator = random.Random(seed)
    return [min(16384, int(64 * generator.paretovariate(0.8))) for _ in range(count)]


class DataLoader:
    """What torch's loader does with a batch sampler in the main process."""

    def __init__(self, dataset, batch_sampler):
        self.dataset, self.batch_sampler = dataset, batch_sampler

    def __iter__(self):
        for indices in self.batch_sampler:
            yield [self.dataset[index] for index in indices]


class MegatronTest(unittest.TestCase):
    GLOBAL_BATCH_SIZE = 64
    RANKS = 4

    def setUp(self):
        self.lengths = lengths_of(3 * self.GLOBAL_BATCH_SIZE + 10)
        self.planner = sluice.Planner([f"{self.RANKS}x<2,2,1>"], gpus=16, model="llama-7b")

    def train(self, rank, consumed_samples=0):
        """The samples of each step on one data-parallel rank, as Megatron's training loop fetches them."""
        sampler = megatron_data_loader.SluiceBatchSampler(
            self.lengths, self.planner, self.GLOBAL_BATCH_SIZE, rank, consumed_samples)
        self.assertEqual(len(sampler), len(self.lengths))
        iterator = iter(DataLoader(range(len(self.lengths)), sampler))
        steps = {}
        for step in range(consumed_samples // self.GLOBAL_BATCH_SIZE, 3):
            steps[step] = [next(iterator) for _ in range(sampler.num_microbatches(step))]
        self.assertEqual(list(iterator), [], "the last, partial batch is dropped")
        return steps

    def test_ranks_share_each_global_batch(self):
        of_rank = [self.train(rank) for rank in range(self.RANKS)]
        for step in range(3):
            samples = [sample for rank in of_rank for micro_batch in rank[step] for sample in micro_batch]
            first = step * self.GLOBAL_BATCH_SIZE
            self.assertEqual(sorted(samples), list(range(first, first + self.GLOBAL_BATCH_SIZE)))

    def test_a_resumed_run_goes_on_with_the_same(self):
        steps = self.train(rank=1)
        del steps[0]
        self.assertEqual(self.train(rank=1, consumed_samples=self.GLOBAL_BATCH_SIZE), steps)


def balance_batch(seqlen_list, world_size, partition):
    """As verl's trainer reorders a batch: the ranks take equal parts of the result, one after the other."""
    partitions = partition(seqlen_list, k_partitions=world_size, equal_size=True)
    return np.array([index for part in partitions for index in part])


class DocumentationTest(unittest.TestCase):
    def blocks(self, page):
        return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), flags=re.DOTALL)

    def test_the_readme_shows_the_example(self):
        for block in self.blocks("README.md"):
            self.assertIn(block, (REPOSITORY / "examples/megatron_data_loader.py").read_text())

    def test_the_pages_code_runs(self):
        for block in self.blocks("docs/python.md"):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(block.replace("bench/data", str(REPOSITORY / "bench/data")), {})
            self.assertTrue(printed.getvalue())


class VerlTest(unittest.TestCase):
    def setUp(self):
        self.partition = verl_balance.PartitionByTime("<4,1,1>", model="llama-7b")

    def check(self, partitions, count, k_partitions):
        self.assertEqual(len(partitions), k_partitions)
        self.assertEqual(sorted(index for part in partitions for index in part), list(range(count)))
        for part in partitions:
            self.assertTrue(part)
            self.assertEqual(part, sorted(part))

    def test_partitions_are_complete_and_none_is_empty(self):
        for count, k_partitions in [(64, 8), (37, 4), (8, 8), (9, 8), (3, 1)]:
            for seed in range(5):
                self.check(self.partition(lengths_of(count, seed), k_partitions, equal_size=False), count, k_partitions)

    def test_equal_sizes(self):
        partitions = self.partition(lengths_of(64), k_partitions=8, equal_size=True)
        self.check(partitions, 64, 8)
        self.assertEqual({len(part) for part in partitions}, {8})

    def test_quadratic_work_is_balanced_better_than_by_order(self):
        lengths = np.array(lengths_of(64))
        order = balance_batch(list(map(int, lengths)), 8, self.partition)
        self.assertEqual(sorted(order), list(range(64)))

        def work_of_slowest(indices):
            return max((lengths[part].astype(float) ** 2).sum() for part in np.split(indices, 8))

        self.assertLessEqual(work_of_slowest(order), work_of_slowest(np.arange(64)))


if __name__ == "__main__":
    unittest.main()
