"""Sluice in Megatron-LM's data loader: micro-batches of equal time instead of equal size.

A program in the manner of pretrain_gpt.py, run with --dataloader-type external --micro-batch-size 1 and
--calculate-per-token-loss, returns `train_data(documents, ...)` as its training data, and calls `balance_training` once
before pretrain(). `documents` is the prefix of a Megatron corpus, whose documents are the samples.
"""

import sluice
import torch
from sluice.integrations import megatron
from sluice.integrations.balancer import Balancer


def train_data(documents, global_batch_size, consumed_samples, rank, ranks):
    """The sampler, and an iterator over the micro-batches of this data-parallel rank."""
    balancer = Balancer("tp4,pp2", calibration="a800-7b")  # Megatron's own tensor and pipeline parallel sizes
    sampler = megatron.BatchSampler(
        sluice.lengths(documents).values, balancer, global_batch_size=global_batch_size,
        consumed_samples=consumed_samples, data_parallel_rank=rank, data_parallel_size=ranks)
    loader = torch.utils.data.DataLoader(
        megatron.Documents(documents), batch_sampler=sampler, collate_fn=megatron.PackedCollate())
    return sampler, iter(loader)


def balance_training(training, sampler, consumed_samples):
    """Lets megatron.training.training run as many micro-batches as each step's plan has.

    consumed_samples: lambda: get_args().consumed_train_samples.
    """
    stock = training.get_forward_backward_func
    training.get_forward_backward_func = lambda: megatron.planned_forward_backward(stock(), sampler, consumed_samples)
