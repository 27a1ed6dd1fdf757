"""Lightning on Cairn's servers: the LightningModule stays as it is.

    with cairn.init() as job:
        trainer = Trainer(strategy=cairn.lightning.Strategy(job), max_epochs=10)
        trainer.fit(module, loader)

Works with the package that the program has imported: lightning or pytorch_lightning.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import torch

from cairn._frameworks import framework
from cairn.errors import InvalidArgument
from cairn.job import Job
from cairn.torch import DistributedOptimizer, distribute


def _package() -> Any:
    """lightning.pytorch or pytorch_lightning, which are the same code, with classes of their own."""
    if "lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules:
        try:
            return framework("lightning.pytorch", "cairn.lightning", "lightning")
        except ImportError:
            pass  # the other one may be there
    return framework("pytorch_lightning", "cairn.lightning", "lightning")


_pl: Any = _package()


class Strategy(_pl.strategies.ParallelStrategy):  # type: ignore[misc]
    """Trains with one process for each worker, started by `cairn run` or a scheduler. The rule of the module's
    optimizer runs on the servers; schedulers, accumulation and precision act as Lightning documents them.

    - Samplers divide the data between the workers, as for DDP. A step is weighted by its examples.
    - Trainer(gradient_clip_val=...) limits the norm of the mean gradient, on the servers.
    - Only the chief logs and saves. The servers' state is saved by cairn.init(train_dir=...).
    - Metrics and decisions, such as sync_dist=True and EarlyStopping, are exchanged by torch.distributed (gloo) if
      MASTER_ADDR and MASTER_PORT are set, as `cairn run` does. Then a lost worker ends the job. collectives=False: each
      worker has its own, and a lost worker may come back.

    options: those of cairn.torch.distribute(): mode, max_staleness, updates, eager, buffers.
    """

    strategy_name = "cairn"

    def __init__(self, job: Job, *, collectives: bool = True, **options: Any) -> None:
        super().__init__()
        self.job = job
        self._collectives = collectives
        self._options = options
        self._distributed: DistributedOptimizer | None = None
        self._examples = 0  # since the last step

    # --- This worker's place ---

    @property
    def global_rank(self) -> int:
        return self.job.worker

    @property
    def world_size(self) -> int:
        return self.job.workers

    @property
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", self.job.worker))

    @property
    def node_rank(self) -> int:
        return 0

    @property
    def root_device(self) -> torch.device:
        devices: list[torch.device] = self.parallel_devices
        return devices[self.local_rank % len(devices)]

    @property
    def is_distributed(self) -> bool:
        return self.job.workers > 1

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self.job.workers, "rank": self.job.worker}

    def set_world_ranks(self) -> None:
        _pl.utilities.rank_zero_only.rank = self.job.worker

    # --- Metrics and decisions ---

    def setup_environment(self) -> None:
        super().setup_environment()
        described = "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ
        if self._collectives and described and self.job.workers > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", rank=self.job.worker, world_size=self.job.workers)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        if not isinstance(tensor, torch.Tensor) or not torch.distributed.is_initialized():
            return tensor
        total = tensor.detach().clone()
        name = str(reduce_op).rpartition(".")[2].lower()
        mean = name in ("mean", "avg")
        torch.distributed.all_reduce(total, getattr(torch.distributed.ReduceOp, "SUM" if mean else name.upper()), group)
        return total / self.job.workers if mean else total

    def barrier(self, name: str | None = None) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        if not torch.distributed.is_initialized():
            return obj
        objects = [obj]
        torch.distributed.broadcast_object_list(objects, src)
        return objects[0]

    # --- Training ---

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        made: list[torch.optim.Optimizer] = super().optimizers
        if len(made) != 1:
            raise InvalidArgument(f"the LightningModule has {len(made)} optimizers, a job has one")
        optimizer = distribute(made[0], self.lightning_module, self.job, max_grad_norm=_norm(trainer),
                               **self._options)
        self._distributed = optimizer
        self.optimizers = [optimizer]
        for config in self.lr_scheduler_configs:
            _attach(config.scheduler, optimizer)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self._distributed is not None
        self._examples += _batch_size(args[0] if args else next(iter(kwargs.values())))
        self._distributed.examples = self._examples
        return super().training_step(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        try:
            output = super().optimizer_step(*args, **kwargs)
        finally:
            self._examples = 0
        if self.job.finished:
            self.lightning_module.trainer.should_stop = True
        return output

    def teardown(self) -> None:
        super(_pl.strategies.ParallelStrategy, self).teardown()


def _norm(trainer: Any) -> float | None:
    """The limit of the gradients' norm, which the trainer then leaves to the servers."""
    limit = trainer.gradient_clip_val
    if not limit:
        return None
    algorithm = getattr(trainer.gradient_clip_algorithm, "value", None)
    if algorithm not in (None, "norm"):
        raise InvalidArgument(f"gradient_clip_algorithm is {algorithm!r}, must be 'norm': servers limit the norm of the mean "
                              "gradient")
    trainer.gradient_clip_val = None
    return float(limit)


def _attach(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Makes a scheduler, which has another optimizer with the same parameter groups, set the rates of this one."""
    scheduler.optimizer = optimizer
    for part in getattr(scheduler, "_schedulers", []):
        _attach(part, optimizer)
    if not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        _track_steps(optimizer)


def _track_steps(optimizer: Any) -> None:
    """As torch's schedulers do, which warn if an optimizer makes no step before theirs."""
    step = optimizer.step

    @functools.wraps(step)
    def tracked(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True
        return step(*args, **kwargs)

    tracked._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = tracked


def _batch_size(batch: Any) -> int:
    try:
        return int(_pl.utilities.data.extract_batch_size(batch))
    except _pl.utilities.exceptions.MisconfigurationException:
        return 1  # all workers' steps then have the same weight
