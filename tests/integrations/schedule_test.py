"""sluice.integrations.parts, and the schedule that sluice.integrations.slime makes of them: caps hold, counts are equal."""

import itertools
import unittest

import numpy as np
import sluice
from lengths import lengths_of
from sluice.integrations import slime
from sluice.integrations.balancer import Balancer
from sluice.integrations.parts import fewest_parts, parts_within
from sluice.integrations.slime import ScheduleByTime

CAP = 9216


def flat(nested):
    return sorted(itertools.chain.from_iterable(nested))


def random_batches(seed=1, batches=40):
    generator = np.random.default_rng(seed)
    for _ in range(batches):
        count = int(generator.integers(1, 60))
        sizes = np.minimum(generator.lognormal(7, 1.3, count).astype(np.int64) + 1, int(generator.choice([3000, 20_000])))
        yield sizes, sizes * 1000 + sizes**2, int(generator.integers(1000, 12_000))


class PartsTest(unittest.TestCase):
    def check(self, parts, sizes, count, room):
        self.assertEqual(len(parts), count)
        self.assertEqual(flat(parts), list(range(len(sizes))))
        for part in parts:
            self.assertTrue(part)
            self.assertTrue(len(part) == 1 or sizes[part].sum() <= room, (sizes[part], room))

    def test_no_part_of_several_holds_more_than_its_room_whatever_their_number(self):
        for sizes, times, room in random_batches():
            least = fewest_parts(times, sizes, room)
            for count in {least, min(least + 1, len(sizes)), (least + len(sizes)) // 2, len(sizes)}:
                self.check(parts_within(times, sizes, count, room), sizes, count, room)

    def test_fewest_parts_are_as_few_as_first_fit_needs_or_fewer_but_never_less_than_their_sizes_need(self):
        for sizes, times, room in random_batches(2):
            fewest, held = fewest_parts(times, sizes, room), []
            for size in sizes:
                part = next((i for i, used in enumerate(held) if used + size <= room), None)
                if part is None:
                    held.append(size)
                else:
                    held[part] += size
            self.assertLessEqual(fewest, len(held) + 1)  # in another order first fit may be lucky
            self.assertGreaterEqual(fewest * room, sizes[sizes <= room].sum())

    def test_no_exchange_within_the_room_lowers_the_largest_time(self):
        for sizes, times, room in random_batches(3, 12):
            count = fewest_parts(times, sizes, room)
            parts = parts_within(times, sizes, count, room)
            sums = [times[part].sum() for part in parts]
            fullest = int(np.argmax(sums))
            for other in set(range(count)) - {fullest}:
                for mine, theirs in itertools.product(parts[fullest], parts[other]):
                    time, size = times[mine] - times[theirs], sizes[mine] - sizes[theirs]
                    fits = sizes[parts[fullest]].sum() - size <= room and sizes[parts[other]].sum() + size <= room
                    self.assertFalse(fits and max(sums[fullest] - time, sums[other] + time) < sums[fullest])


class ScheduleTest(unittest.TestCase):
    RANKS, STEP = 4, 64

    def schedule(self, **arguments):
        return ScheduleByTime(Balancer("<4,1,1>", calibration="a800-7b"), **{"global_batch_size": self.STEP, **arguments})

    def test_every_step_has_its_own_samples_and_every_rank_as_many_and_as_many_micro_batches(self):
        for seed, multiple in itertools.product(range(4), [1, 4]):
            lengths = np.minimum(np.array(lengths_of(3 * self.STEP, seed)), CAP)
            steps = self.schedule(multiple=multiple).schedule(lengths, self.RANKS, CAP)
            self.assertEqual(len(steps), 3)
            for number, ranks in enumerate(steps):
                first = number * self.STEP
                self.assertEqual(flat(flat(rank) for rank in ranks), list(range(first, first + self.STEP)))
                self.assertEqual({len(flat(rank)) for rank in ranks}, {self.STEP // self.RANKS})
                self.assertEqual(len({len(rank) for rank in ranks}), 1)
                self.assertEqual(len(ranks[0]) % multiple, 0)
                for micro_batch in itertools.chain.from_iterable(ranks):
                    self.assertTrue(micro_batch)
                    self.assertLessEqual(lengths[micro_batch].sum(), CAP)

    def test_a_sample_longer_than_the_cap_has_a_micro_batch_of_its_own(self):
        lengths = [200_000, 300, 300, 300, 9000, 300, 300, 300]
        (ranks,) = self.schedule(global_batch_size=None).schedule(lengths, 2, CAP)
        self.assertIn([0], [*ranks[0], *ranks[1]])

    def test_ranks_take_the_longest_micro_batches_first(self):
        schedule = self.schedule()
        (ranks,) = schedule.schedule(np.minimum(lengths_of(self.STEP), CAP), self.RANKS, CAP)
        for rank in ranks:
            times = [schedule.balancer.times.of(np.minimum(lengths_of(self.STEP), CAP)[each]) for each in rank]
            self.assertEqual(times, sorted(times, reverse=True))

    def test_what_cannot_be_is_refused_with_the_way_out(self):
        for wrong, message in (({"global_batch_size": 0}, "global_batch_size is 0"), ({"multiple": 0}, "multiple is 0")):
            with self.assertRaisesRegex(sluice.InputError, message):
                self.schedule(**wrong)
        schedule = self.schedule()
        with self.assertRaisesRegex(sluice.InputError, "63 samples are no multiple of the global batch size 64"):
            schedule.shares([5] * 63, 4)
        with self.assertRaisesRegex(sluice.InputError, "64 sequences cannot be 3 parts"):
            schedule.shares([5] * 64, 3)
        with self.assertRaisesRegex(sluice.InputError, "max_tokens is 0"):
            schedule.count([5, 6], 0)
        with self.assertRaisesRegex(sluice.InputError, "2 samples of a rank fill no 4 micro-batches"):
            self.schedule(multiple=4).count([5, 6], CAP)
        for count in (1, 4):
            with self.assertRaisesRegex(sluice.InputError, f"{count} micro-batches for 3 samples.* allow 2 to 3"):
                schedule.micro_batches([CAP, 5, 6], count, CAP)

    def test_other_releases_are_named(self):
        with self.assertRaisesRegex(sluice.InputError, "json.decoder has no get_seqlen"):
            slime._replace("json.decoder", {"get_seqlen_balanced_partitions": None})


if __name__ == "__main__":
    unittest.main()
