"""The environment of a worker that other libraries read: hide_ranks()."""

from __future__ import annotations

import os

_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_RUN_ID")


def hide_ranks() -> None:
    """Removes the variables of torch.distributed from the environment of this process, for libraries that would wrap
    the model in DistributedDataParallel if they found them: Accelerate and Hugging Face's Trainer. They then work as in
    a single process. Call it after init(), and divide the data by job.worker and job.workers.

    With a GPU for each worker of a machine, set CUDA_VISIBLE_DEVICES to LOCAL_RANK before this call."""
    for name in _RANKS:
        os.environ.pop(name, None)
