"""Sluice in verl: sequences spread over data-parallel ranks by the time that they take, not by their tokens.

Call it in the trainer's process before the trainer runs. "tp4" is how one data-parallel rank of the actor
computes: four tensor-parallel GPUs.
"""

import importlib

from sluice.integrations.verl import PartitionByTime

TRAINERS = ("verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v1.trainer_base", "verl.trainer.sft_trainer_ray")


def balance_by_time(scheme="tp4", calibration="a800-7b", trainers=TRAINERS):
    for trainer in trainers:
        importlib.import_module(trainer).get_seqlen_balanced_partitions = PartitionByTime(
            scheme, calibration=calibration)
