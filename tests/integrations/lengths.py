"""Batches that the tests of all integrations use."""

import random


def lengths_of(count, seed=1, most=16384):
    """Many short sequences, few long ones."""
    generator = random.Random(seed)
    return [min(most, int(64 * generator.paretovariate(0.8))) for _ in range(count)]
