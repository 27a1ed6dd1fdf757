"""A loop over the steps of a job, with a progress bar: Job.progress()."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cairn.job import Job


def positions(job: Job, bar: Callable[..., Any] | None, steps: int | None, options: Mapping[str, Any]) -> Iterator[int]:
    shown = None
    if bar is not None:
        shown = bar(total=steps, initial=job.position, **{"disable": not job.is_chief, **options})
    try:
        while not job.finished and (steps is None or job.position < steps):
            yield job.position
            if shown is not None:
                shown.update(job.position - shown.n)  # below 0 after servers went back to a checkpoint
    finally:
        if shown is not None:
            shown.close()
