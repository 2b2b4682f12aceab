"""Sluice in miles and slime: samples over ranks and micro-batches by the time that they take, no micro-batch over its cap.

With this file in PYTHONPATH, give the program the options

    --balance-data --use-dynamic-batch-size --max-tokens-per-gpu 9216
    --data-source-path slime_balance.DataSource          the rollout manager loads it
    --custom-megatron-init-path slime_balance.init       every rank of the trainer calls it

"tp4" is how one data-parallel rank of the trainer computes: four tensor-parallel GPUs.
"""

from miles.rollout.data_source import RolloutDataSourceWithBuffer
from sluice.integrations.balancer import Balancer
from sluice.integrations.slime import ScheduleByTime


def schedule(args):
    one_step = args.use_dynamic_global_batch_size
    return ScheduleByTime(Balancer("tp4", calibration="a800-7b"),
                          global_batch_size=None if one_step else args.global_batch_size)


class DataSource(RolloutDataSourceWithBuffer):
    def __init__(self, args):
        super().__init__(args)
        schedule(args).install_rollout("miles")


def init(args):
    schedule(args).install_training("miles")
