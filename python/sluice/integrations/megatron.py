"""Sluice in Megatron-LM (megatron-core 0.16): micro-batches of equal time instead of equal size.

A training program in the manner of pretrain_gpt.py takes three things of this module, and changes nothing in Megatron:

    import megatron.training.training as training
    from sluice.integrations import megatron as sluice

    def datasets_provider(_):                                   # with --dataloader-type external
        args = get_args()
        batches = sluice.BatchSampler(lengths, balancer, global_batch_size=args.global_batch_size,
                                      consumed_samples=args.consumed_train_samples,
                                      data_parallel_rank=mpu.get_data_parallel_rank(),
                                      data_parallel_size=mpu.get_data_parallel_world_size())
        loader = torch.utils.data.DataLoader(dataset, batch_sampler=batches, collate_fn=sluice.PackedCollate())
        stock = training.get_forward_backward_func
        training.get_forward_backward_func = lambda: sluice.planned_forward_backward(
            stock(), batches, lambda: get_args().consumed_train_samples)
        return iter(loader), None, None

Megatron counts consumed samples as micro-batch size x data-parallel size x get_num_microbatches(), and that stays the
global batch: run with --micro-batch-size 1. Only forward and backward are told how many micro-batches the step's plan
has. A rank's micro-batches differ in tokens and the ranks' in number, so losses are summed and divided by the tokens of
the global batch: --calculate-per-token-loss.

Sources: megatron/training/training.py (train, train_step), megatron/training/datasets/data_samplers.py and
pretrain_gpt.py (get_batch) of Megatron-LM's tag core_v0.16.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.utils import get_model_config
from numpy.typing import ArrayLike

from sluice._sluice import InputError
from sluice.integrations import packing
from sluice.integrations.balancer import Balancer, StepBatches, even_counts


class BatchSampler:
    """What MegatronPretrainingSampler is: the micro-batches of one data-parallel rank, as lists of sample numbers.

    Each global batch holds the next `global_batch_size` samples, so a run with other rank counts, or none of this,
    sees the same batches. What is left behind the last whole one is dropped.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        balancer: Balancer,
        *,
        global_batch_size: int,
        consumed_samples: int,
        data_parallel_rank: int,
        data_parallel_size: int,
        equal_counts: bool = False,
    ) -> None:
        """
        lengths: tokens of each of the data set's samples, which it must not pad.
        consumed_samples: those that earlier runs trained on: a multiple of `global_batch_size`.
        equal_counts: every rank gets as many micro-batches as the one with the most, the last of them perhaps empty;
            for experts spread over data-parallel ranks, which exchange tokens in each.

        Raises InputError naming the value and the way out.
        """
        self._steps = StepBatches(lengths, balancer, global_batch_size, data_parallel_size)
        if not 0 <= data_parallel_rank < data_parallel_size:
            raise InputError(f"data_parallel_rank is {data_parallel_rank}: give 0 to {data_parallel_size - 1}")
        self._rank, self._equal_counts = data_parallel_rank, equal_counts
        self._first_step = self._step_of(consumed_samples)
        if self._first_step >= len(self._steps):
            raise InputError(f"{consumed_samples} of {len(self)} samples are consumed: no whole batch is left")

    def __len__(self) -> int:
        """Samples, as Megatron's samplers say."""
        return len(self._steps.lengths)

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._first_step, len(self._steps)):
            yield from self._micro_batches(step)

    def num_microbatches(self, consumed_samples: int) -> int:
        """Of this rank, in the step that begins behind so many samples."""
        return len(self._micro_batches(self._step_of(consumed_samples)))

    def _micro_batches(self, step: int) -> list[list[int]]:
        planned = self._steps[step]
        return (even_counts(planned) if self._equal_counts else planned)[self._rank]

    def _step_of(self, consumed_samples: int) -> int:
        step, rest = divmod(consumed_samples, self._steps.batch_size)
        if rest or step < 0:
            raise InputError(
                f"consumed_samples is {consumed_samples}, no multiple of the global batch size {self._steps.batch_size}: "
                f"go on with the size that the run began with, without a ramp, and --micro-batch-size 1"
            )
        return step


def planned_forward_backward(
    forward_backward_func: Callable[..., Any], sampler: BatchSampler, consumed_samples: Callable[[], int]
) -> Callable[..., Any]:
    """megatron.core's function with the number of micro-batches that the plan of the step has; evaluation as before.

    consumed_samples: args.consumed_train_samples, asked in every step, so that a step that Megatron runs again gets
    its own number again.
    """

    @functools.wraps(forward_backward_func)
    def run(*, model: Any, num_microbatches: int, forward_only: bool = False, **arguments: Any) -> Any:
        if not forward_only:
            chunk = model[0] if isinstance(model, list) else model
            if not get_model_config(chunk).calculate_per_token_loss:
                raise InputError("micro-batches differ in tokens: run with --calculate-per-token-loss")
            num_microbatches = sampler.num_microbatches(consumed_samples())
        return forward_backward_func(
            model=model, num_microbatches=num_microbatches, forward_only=forward_only, **arguments
        )

    return run


class Documents(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The documents of a Megatron corpus, as arrays of tokens: as many, and as long, as sluice.lengths(prefix) says.

    IndexedDataset itself counts sequences. Where `preprocess_data.py --split-sentences` made the corpus, a document has
    one for each of its sentences; here they are joined.
    """

    def __init__(self, prefix: str) -> None:
        self.corpus = IndexedDataset(prefix)

    def __len__(self) -> int:
        return len(self.corpus.document_indices) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        begin, end = (int(bound) for bound in self.corpus.document_indices[number:number + 2])
        sequences = self.corpus[begin:end] if begin < end else []
        return np.concatenate([np.empty(0, self.corpus.index.dtype), *sequences])


class PackedCollate:
    """Joins the samples of a micro-batch to one row with `cu_seqlens`, as Megatron's packed (thd) batches are.

    A sample is a dictionary with `tokens` and, where it has them, `labels` and `loss_mask`, all of one length; or the
    tokens alone, as IndexedDataset gives them. Without labels each token's is the next one, and the last has no loss.
    """

    def __init__(self, pad_to: int | None = None, pad_token: int = 0) -> None:
        """
        pad_to: length of every row: args.seq_length, where tensor-parallel ranks receive batches by pretrain_gpt.py's
            get_batch, which knows no other shape. The padding is a sequence of its own, without loss; it takes time
            that the plan does not know of. None: a row is as long as its samples.
        """
        self.pad_to, self.pad_token = pad_to, pad_token

    def __call__(self, samples: Sequence[Any]) -> dict[str, torch.Tensor]:
        complete = [_complete(sample) for sample in samples]
        padding = self._padding(sum(len(sample["tokens"]) for sample in complete))
        if padding:
            blank = np.full(padding, self.pad_token)
            complete.append({"tokens": blank, "labels": blank, "loss_mask": np.zeros(padding)})
        lengths = [len(sample["tokens"]) for sample in complete]
        return {
            "tokens": packing.row((sample["tokens"] for sample in complete), torch.int64),
            "labels": packing.row((sample["labels"] for sample in complete), torch.int64),
            "loss_mask": packing.row((sample["loss_mask"] for sample in complete), torch.float32),
            "position_ids": packing.positions(lengths),
            "cu_seqlens": packing.cumulative(lengths).unsqueeze(0),
            "max_seqlen": torch.tensor([max(lengths)], dtype=torch.int32),
        }

    def _padding(self, tokens: int) -> int:
        if self.pad_to is None:
            return 0 if tokens else 1  # a micro-batch without samples is one token without loss
        if tokens > self.pad_to:
            raise InputError(f"a micro-batch has {tokens} tokens but pad_to is {self.pad_to}: raise it (--seq-length)")
        return self.pad_to - tokens


def _complete(sample: Any) -> dict[str, Any]:
    if not isinstance(sample, Mapping):
        sample = {"tokens": sample}
    tokens = np.asarray(sample["tokens"])
    loss_mask = np.asarray(sample.get("loss_mask", np.ones(len(tokens))))
    if "labels" in sample:
        return {"tokens": tokens, "labels": sample["labels"], "loss_mask": loss_mask}
    return {"tokens": tokens, "labels": np.append(tokens[1:], tokens[:1]),
            "loss_mask": np.append(loss_mask[1:], np.zeros(len(tokens[:1])))}


def packed_seq_params(batch: Mapping[str, torch.Tensor]) -> PackedSeqParams:
    """What megatron.core's models take beside the tokens of such a batch."""
    cu_seqlens, longest = batch["cu_seqlens"].flatten(), int(batch["max_seqlen"])
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_kv=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
