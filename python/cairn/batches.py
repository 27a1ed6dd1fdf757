"""Batches that the servers assign to the workers as they go: Job.batches()."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cairn import _native
from cairn._options import whole
from cairn.errors import InvalidArgument, Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cairn.job import Job
    from cairn.steps import Steps

_MAX_ITEMS_AHEAD = 64
_NOT_SHUFFLED = 2**64 - 1  # in place of the seed, so that workers and checkpoints with another order are refused


class Dataset(Protocol):
    """A map-style dataset, such as torch.utils.data.Dataset or a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Item(NamedTuple):
    """A work item: positions [first, first + examples) in the order of an epoch."""

    epoch: int
    first: int
    examples: int


class Batches:
    """Made by Job.batches(). Iterating yields this worker's batches, from where the job is to its last epoch.

    Each batch must be used in one step. A batch whose step did not count, because the servers lost it, comes again or
    goes to another worker.
    """

    def __init__(self, job: Job, dataset: Dataset, batch_size: int, *, epochs: int, seed: int, shuffle: bool,
                 collate_fn: Callable[[list[Any]], Any] | None, num_workers: int, options: Mapping[str, Any]) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InvalidArgument(f"the dataset is {type(dataset).__name__}, must have len() and indices: give job.batches() "
                                  "the map-style dataset itself, not a DataLoader or an iterable")
        batch_size, epochs, seed, num_workers, _ = (
            whole(value, name, least, 2**64)
            for name, value, least in (("batch_size", batch_size, 1), ("epochs", epochs, 0), ("seed", seed, 0),
                                       ("num_workers", num_workers, 0), ("the number of examples", len(dataset), 1)))
        if seed >= _NOT_SHUFFLED:
            raise InvalidArgument(f"seed is {seed}, must be below {_NOT_SHUFFLED}")
        if options and not num_workers:
            raise InvalidArgument(f"{', '.join(options)}: options of a DataLoader, which only num_workers makes")
        self.dataset = dataset
        self.epoch = 0  # of the batch that was yielded last, from 0
        self._job = job
        self._order = _Order(len(dataset), seed if shuffle else None)
        self._collate = collate_fn
        self._num_workers = num_workers
        self._options = dict(options)
        self._unused: Item | None = None  # the current work item, until a step has used it
        ahead = num_workers * self._options.get("prefetch_factor", 2)
        self.queue = _native.WorkQueue()
        self.queue.examples, self.queue.batch_size, self.queue.epochs = len(dataset), batch_size, epochs
        self.queue.items_ahead = min(max(ahead, 1), _MAX_ITEMS_AHEAD)
        self.queue.seed = seed if shuffle else _NOT_SHUFFLED

    def __iter__(self) -> Iterator[Any]:
        return self.look_ahead(None)

    def look_ahead(self, on_next: Callable[[Any], None] | None) -> Iterator[Any]:
        """Iterates. Before a batch is yielded, on_next() gets the one that probably follows, or None. It may still go
        to another worker."""
        steps, session = self._job.steps, self._job.session
        steps.settle_interrupted()  # a step of an earlier loop, which used its batch
        if steps.on_values is not None:
            steps.on_values()
        load = self._load_here
        if self._num_workers > 0:
            steps.await_work()  # the processes begin with what is known
            load = _Workers(steps, self._order, self._loader).load
        loaded: dict[Item, Any] = {}  # the batch that probably follows
        while True:
            steps.await_work()
            if session.finished:
                return
            item = steps.work_items()[0]
            self._unused, self.epoch = item, item.epoch
            if item.examples == 0:
                steps.without_examples()
                continue
            batch = loaded.pop(item) if item in loaded else load(item)
            loaded = {}
            if on_next is not None:
                following = next((other for other in steps.work_items()[1:2] if other.examples), None)
                if following is not None:
                    loaded[following] = load(following)
                on_next(loaded.get(following) if following is not None else None)
            yield batch
            if self._unused is not None and not session.finished:
                raise Refused("no step was made with the last batch of job.batches(): step with examples=0 to leave one out")

    def check_unused(self) -> None:
        """Raises Refused unless a step may begin: the current batch has been taken, and no step has used it."""
        if self._unused is None or self.gone():
            raise Refused("a step needs a batch of its own: take the next one from job.batches()")

    def gone(self) -> bool:
        """Whether the current batch is not this worker's any more."""
        return self._unused is not None and self._job.steps.work_items()[:1] != [self._unused]

    def use(self) -> None:
        """A step with the current batch has ended."""
        self._unused = None

    def _load_here(self, item: Item) -> Any:
        return (self._collate or _default_collate())(_fetch(self.dataset, self._order.indices(item)))

    def _loader(self, requests: Iterator[_Request]) -> Iterator[tuple[Item | None, Any]]:
        """Answers `requests` in their order, and takes each one some time before its answer is asked for."""
        import torch
        options = {"generator": torch.Generator().manual_seed(self._order.seed or 0), **self._options}
        collate: Any = _Collate(self._collate or torch.utils.data.default_collate)
        requested: Any = _Requested(self.dataset)  # with whole requests in place of indices
        sampler: Any = requests
        return iter(torch.utils.data.DataLoader(requested, batch_sampler=sampler, num_workers=self._num_workers,
                                                collate_fn=collate, **options))


class _Order:
    """The order of the examples in each epoch, which is the same on all workers."""

    def __init__(self, examples: int, seed: int | None) -> None:
        self.seed = seed
        self._examples = examples
        self._epochs: dict[int, npt.NDArray[np.int64]] = {}  # the last two that were asked for

    def indices(self, item: Item) -> list[int]:
        if self.seed is None:
            return list(range(item.first, item.first + item.examples))
        if item.epoch not in self._epochs:
            import numpy as np
            self._epochs = {epoch: order for epoch, order in self._epochs.items() if abs(epoch - item.epoch) == 1}
            self._epochs[item.epoch] = np.random.default_rng([self.seed, item.epoch]).permutation(self._examples)
        return [int(index) for index in self._epochs[item.epoch][item.first:item.first + item.examples]]


# The sampler of a DataLoader yields requests: a work item and its indices. None: an empty request.
_Request = tuple[Item | None, list[int]]


class _Workers:
    """The processes of a DataLoader, which load the batches of work items that this worker will probably get.

    A DataLoader asks its sampler ahead of time, and answers in order. When all known work items have been asked for,
    the sampler yields an empty request. A batch whose work item has gone to another worker is dropped: steps alone
    decide which examples count.
    """

    def __init__(self, steps: Steps, order: _Order, make_loader: Callable[[Iterator[_Request]], Iterator[tuple[Item | None, Any]]]) -> None:
        self._steps = steps
        self._order = order
        self._asked: set[Item] = set()
        self._given: set[Item] = set()
        self._loaded: dict[Item, Any] = {}
        self._answers = make_loader(self._requests())

    def load(self, item: Item) -> Any:
        if item in self._given:  # its step did not count
            self._given.discard(item)
            self._asked.discard(item)
        while item not in self._loaded:
            answered, batch = next(self._answers)
            if answered is not None:
                self._loaded[answered] = batch
        batch = self._loaded.pop(item)
        self._given.add(item)
        known = set(self._steps.work_items())
        for gone in self._loaded.keys() - known:
            del self._loaded[gone]
            self._asked.discard(gone)
        for gone in self._given - known:
            self._given.discard(gone)
            self._asked.discard(gone)
        return batch

    def _requests(self) -> Iterator[_Request]:
        while True:
            item = next((item for item in self._steps.work_items() if item.examples and item not in self._asked), None)
            if item is None:
                yield None, []
            else:
                self._asked.add(item)
                yield item, self._order.indices(item)


class _Requested:
    """The examples of a request, loaded in a process of the DataLoader."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getitems__(self, request: _Request) -> tuple[Item | None, list[Any]]:
        item, indices = request
        return item, _fetch(self._dataset, indices)


class _Collate:

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate_fn = collate_fn

    def __call__(self, answer: tuple[Item | None, list[Any]]) -> tuple[Item | None, Any]:
        item, examples = answer
        return item, None if item is None else self._collate_fn(examples)


def _fetch(dataset: Dataset, indices: Sequence[int]) -> list[Any]:
    together = getattr(dataset, "__getitems__", None)
    return list(together(indices)) if together is not None else [dataset[index] for index in indices]


def _default_collate() -> Callable[[list[Any]], Any]:
    """torch's if the program uses torch; otherwise a batch is the list of its examples."""
    if "torch" not in sys.modules:
        return list
    from torch.utils.data import default_collate
    return default_collate
