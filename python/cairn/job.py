"""A worker of a training job: cairn.init()."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from cairn import _native, cluster, progress
from cairn._options import EXAMPLES_LIMIT, connect_options, seconds, whole
from cairn.batches import Batches, Dataset
from cairn.errors import Error, InvalidArgument, Refused
from cairn.keras_optimizer import native_optimizer
from cairn.steps import Result, Ring, Steps
from cairn.tables import Exchange, OpenTable, Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger("cairn")

_Batch = TypeVar("_Batch")

CLOSED = "the job is closed: this worker has left it, and cairn.init() begins another"

_MODES = {"sync": _native.Mode.SYNC, "async": _native.Mode.ASYNC, "ssp": _native.Mode.BOUNDED_STALENESS}
_ENCODINGS = {"float32": _native.Encoding.FLOAT32, "bfloat16": _native.Encoding.BFLOAT16,
              "float16": _native.Encoding.FLOAT16}


def init(servers: str | Sequence[str] | None = None, *, worker: int | None = None, workers: int | None = None,
         peers: str | Sequence[str] | None = None,
         connect_timeout: float = 300, step_timeout: float = 600, lease: float = 10,
         tls: tuple[str, str, str] | None = None, job_token_file: str | os.PathLike[str] = "",
         train_dir: str | os.PathLike[str] | None = None, save_steps: int = 0, save_secs: float = 0, keep: int = 5,
         replication: int = 0, wire_dtype: str = "float32", elastic: bool = False, min_workers: int = 0,
         max_workers: int = 0) -> Job:
    """Describes the cluster and this worker's number in it. Nothing is connected before the variables are known.

    Both come from the arguments; without `servers` from TF_CONFIG; without that from CAIRN_SERVERS
    ("host:port,host:port") with RANK and WORLD_SIZE, which `torchrun` sets. Worker 0 is the chief: all workers begin
    with its values, and it saves checkpoints and ends the servers. peers: the addresses on which the workers listen for
    each other, in the order of their numbers, for mode="allreduce", which needs no servers; by default those of
    TF_CONFIG or of CAIRN_WORKERS.

    connect_timeout, step_timeout: limits, in seconds, of waits before and during training. lease: a worker without a
    sign of life for so many seconds is lost, and the others go on. tls: paths of certificate, key and CA. train_dir:
    the chief saves a checkpoint there every save_steps updates or save_secs seconds and at the end, keeps the `keep`
    newest ones, and resumes from the newest. replication: 1 keeps a copy of each server's values on another server.
    wire_dtype: the encoding of gradients and values on the wire: float32, bfloat16 or float16. elastic: workers may
    join under any free number and leave while the job runs, and Job.batches() divides the examples; with fewer than
    min_workers the job pauses, and workers beyond max_workers (0: no limit) wait.
    """
    assigned = cluster.assignment(servers, worker, workers, peers, elastic)
    if wire_dtype not in _ENCODINGS:
        raise InvalidArgument(f"wire_dtype is {wire_dtype!r}, must be one of {', '.join(_ENCODINGS)}")
    if not isinstance(elastic, bool):
        raise InvalidArgument(f"elastic is {elastic!r}, must be True or False")
    if train_dir is not None and not os.fspath(train_dir):
        raise InvalidArgument("train_dir is empty: give a directory, or None to save nothing")
    options = _native.SessionOptions()
    options.connect = connect_options(assigned.servers, connect_timeout=connect_timeout, tls=tls, job_token_file=job_token_file)
    options.worker = assigned.worker
    options.step_timeout = seconds(step_timeout, "step_timeout")
    if train_dir is not None:
        options.checkpoint_directory = os.fspath(train_dir)
        options.checkpoint_every_updates = whole(save_steps, "save_steps", 0)
        if save_secs:
            options.checkpoint_every = seconds(save_secs, "save_secs")
        options.checkpoints_to_keep = whole(keep, "keep", 0)
    description = _native.Job()
    description.workers = assigned.workers
    description.lease = seconds(lease, "lease")
    description.backups = whole(replication, "replication", 0, 2**31)
    description.encoding = _ENCODINGS[wire_dtype]
    description.elastic = elastic
    description.min_workers = whole(min_workers, "min_workers", 0, 2**31)
    description.max_workers = whole(max_workers, "max_workers", 0, 2**31)
    return Job(description, options, assigned.peers)


class Job:
    """A worker of a job; made by init(). All calls come from one thread. A context manager that calls close().

    The calls that wait have the time limits of init(), and end soon after Ctrl-C. In a forked process, every call
    raises: a connection belongs to the process that made it.
    """

    def __init__(self, description: _native.Job, options: _native.SessionOptions, peers: Sequence[str] = ()) -> None:
        self._description = description
        self._options = options
        self._peers = list(peers)
        self._membership: Steps | Ring | None = None  # Ring: mode="allreduce"
        self._names: dict[str, int] = {}
        self._shapes: list[tuple[int, ...]] = []
        self._closed = False
        self._batches: Batches | None = None  # until the job begins

    # --- Who this is ---

    @property
    def worker(self) -> int:
        """This worker's number. 0 is the chief."""
        return self._options.worker

    @property
    def workers(self) -> int:
        """The number of workers of the job."""
        return self._description.workers

    @property
    def servers(self) -> list[str]:
        """The addresses of the servers, in the order of their task index."""
        return list(self._options.connect.servers)

    @property
    def is_chief(self) -> bool:
        """Whether this is worker 0."""
        return self.worker == 0

    # --- Start ---

    def open(self, variables: Sequence[_native.Variable], optimizer: _native.Optimizer, *, mode: str,
             max_staleness: int | None = None, updates: int = 0, skip_empty_updates: bool = False,
             tables: Sequence[Table] = (), first_values: Callable[[npt.NDArray[np.float32]], None] | None = None) -> Steps:
        """Joins the job with these variables. For integrations such as cairn.torch; start() is for arrays.

        skip_empty_updates: a round without examples changes neither values nor the optimizer's state.
        """
        self._check_not_begun()
        if mode not in _MODES:
            raise InvalidArgument(f"mode is {mode!r}, must be one of {', '.join(_MODES)}; only cairn.torch.distribute() has "
                                  "'allreduce'")
        if not self.servers:
            raise InvalidArgument(f"mode {mode!r} needs servers: give them to init(), or use cairn.torch.distribute() with "
                                  "mode='allreduce'")
        if mode == "ssp" and max_staleness is None:
            raise InvalidArgument("mode 'ssp' needs max_staleness: how many steps a worker may be ahead of the slowest one")
        if mode == "sync" and max_staleness is not None:
            raise InvalidArgument(f"max_staleness is {max_staleness!r}, but mode is 'sync': it is for 'ssp' and 'async'")
        description = self._description
        if self._batches is not None:
            description.work_queue = self._batches.queue
        elif description.elastic:
            raise InvalidArgument("an elastic job needs job.batches() before start() or cairn.torch.distribute()")
        description.variables = list(variables)
        description.tables = [table.description() for table in tables]
        description.optimizer = optimizer
        description.mode = _MODES[mode]
        description.max_staleness = -1 if max_staleness is None else whole(max_staleness, "max_staleness", 0, 2**31)
        description.updates = whole(updates, "updates", 0)
        description.skip_empty_updates = skip_empty_updates
        try:
            session = _native.Session(description, self._options, first_values, _log.info)
        except Refused as error:
            if any(job.servers == self.servers and job.worker == self.worker for job in _open_jobs):
                raise Refused(f"{error}; this process has another open job as worker {self.worker} of these servers: close() "
                              "that one first", error.code) from None
            raise
        self._names = {variable.name: i for i, variable in enumerate(variables)}
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._membership = Steps(session, description, self.worker, self._batches)
        self._batches = None
        _open_jobs.add(self)
        return self._membership

    def _check_not_begun(self) -> None:
        if self._membership is not None or self._closed:
            raise Refused("this job has begun already: each job has one model; call init() again for another")

    def open_all_reduce(self, variables: Sequence[_native.Variable], description: str, save: Callable[[], bytes],
                        load: Callable[[bytes], None], join_others: Callable[[], None]) -> _native.AllReduce:
        """Joins the other workers without servers. For integrations such as cairn.torch: `save` and `load` are for the
        state that a worker takes over from another, and workers with another `description` are refused. `join_others`,
        at the end, takes part in the others' steps until no worker has more."""
        self._check_not_begun()
        if not self._peers:
            raise InvalidArgument("mode 'allreduce' needs the addresses of the workers: init(peers=...), CAIRN_WORKERS or TF_CONFIG")
        for name, wanted in (("job.batches()", self._batches is not None), ("elastic", self._description.elastic),
                             ("train_dir", bool(self._options.checkpoint_directory)),
                             ("replication", self._description.backups > 0),
                             ("wire_dtype", self._description.encoding != _native.Encoding.FLOAT32)):
            if wanted:
                raise InvalidArgument(f"{name} needs servers: mode 'allreduce' has none")
        self._description.variables = list(variables)
        options = _native.AllReduceOptions()
        options.connect, options.workers, options.worker = self._options.connect, self._peers, self.worker
        options.reuse_port = "CAIRN_REUSE_PORT" in os.environ
        options.step_timeout, options.lease = self._options.step_timeout, self._description.lease
        options.description = description
        ring = _native.AllReduce(self._description, options, save, load, _log.info)
        self._membership = Ring(ring, join_others)
        _open_jobs.add(self)
        return ring

    @property
    def steps(self) -> Steps:
        """For integrations: the steps on the servers. Raises Refused before start() or cairn.torch.distribute()."""
        membership = self._begun()
        if isinstance(membership, Ring):
            raise Refused("mode 'allreduce' has no servers")
        return membership

    def _begun(self) -> Steps | Ring:
        if self._membership is None:
            raise Refused("the job has not begun: call start() or cairn.torch.distribute() first")
        return self._membership

    @property
    def session(self) -> _native.Session:
        """The connection. Raises Refused before start() or cairn.torch.distribute()."""
        return self.steps.session

    def _open_steps(self) -> Steps:
        """Raises Refused after close(), too."""
        steps = self.steps
        if self._closed:
            raise Refused(CLOSED)
        return steps

    def start(self, values: Mapping[str, npt.ArrayLike], optimizer: Any = "SGD", *, mode: str = "sync",
              max_staleness: int | None = None, updates: int = 0,
              tables: Sequence[Table] = ()) -> dict[str, npt.NDArray[np.float32]]:
        """Joins the job, whose variables are `values`; returns those of the chief, or of a checkpoint.

        optimizer: the name of a Keras optimizer, Keras' object {"class_name": ..., "config": {...}}, or a Keras
        optimizer. mode: "sync", "async" or "ssp" (bounded staleness, which needs max_staleness). updates: the length of
        the job; 0: until the chief closes it. tables: embedding tables; table() reads rows, and push() updates them.
        """
        import numpy as np
        arrays = {name: np.array(_real(value, name), np.float32, order="C") for name, value in values.items()}
        variables = [native_variable(name, array.shape) for name, array in arrays.items()]
        rule = native_optimizer(optimizer)

        def fill(flat: npt.NDArray[np.float32]) -> None:
            np.concatenate([array.reshape(-1) for array in arrays.values()], out=flat)

        self.open(variables, rule, mode=mode, max_staleness=max_staleness, updates=updates, tables=tables, first_values=fill)
        return self._values()

    # --- Examples ---

    def batches(self, dataset: Dataset, batch_size: int, *, epochs: int = 1, seed: int = 0, shuffle: bool = True,
                collate_fn: Callable[[list[Any]], Any] | None = None, num_workers: int = 0, **loader_options: Any) -> Batches:
        """The batches of a map-style dataset, which the servers assign to the workers: each example of each epoch
        counts once, also when workers are lost, join, or resume from train_dir. All workers call it with the same
        dataset and numbers, before start() or cairn.torch.distribute(), and iterate it after that:

            for x, y in batches:
                ...                  # one step for each batch; its weight is its number of examples

        In a synchronous job, no round has examples of two epochs; a worker without a batch takes part without
        examples. epochs: 0 means no end. collate_fn: makes a batch of a list of examples; by default torch's
        default_collate in a program that uses torch, else the list. num_workers: processes that load batches ahead, by
        a DataLoader of torch, with `loader_options`.
        """
        if self._membership is not None or self._batches is not None:
            raise Refused("job.batches() is called once, before start() or cairn.torch.distribute()")
        self._batches = Batches(self, dataset, batch_size, epochs=epochs, seed=seed, shuffle=shuffle, collate_fn=collate_fn,
                                num_workers=num_workers, options=loader_options)
        return self._batches

    # --- Steps with arrays ---

    def push(self, gradients: Mapping[str, npt.ArrayLike], examples: int | None = None,
             rows: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]] | None = None) -> Result:
        """Pushes a gradient of the current values, the mean over `examples` examples, which is its weight, and waits
        for the update. By default `examples` is the number of the current batch of batches(), or 1. A variable that is
        not in `gradients` has a gradient of zeros. With 0 examples, takes part in the round without a gradient. rows:
        {table: (ids, gradients [id][element])}; gradients of an id that occurs twice are added."""
        steps, session = self._open_steps(), self.session
        steps.settle_interrupted()
        if steps.lost:
            return steps.leave_out()
        weight = whole((steps.batch_examples or 1) if examples is None else examples, "examples", 0, EXAMPLES_LIMIT)
        import numpy as np
        unknown = gradients.keys() - self._names.keys()
        if unknown:
            raise InvalidArgument(f"no such variable: {', '.join(sorted(unknown))}")
        for name, index in self._names.items():
            place = session.gradients(index)
            if name not in gradients:
                place[:] = 0
                continue
            gradient = np.asarray(_real(gradients[name], name), np.float32)
            if gradient.shape != self._shapes[index]:
                raise InvalidArgument(f"the gradient of {name!r} has the shape {list(gradient.shape)}, the variable "
                                      f"{list(self._shapes[index])}")
            place[:] = gradient.reshape(-1)
        steps.exchange.push([self._row_gradients(name, *of_table) for name, of_table in (rows or {}).items()])
        return steps.make(lambda: steps.begin(weight))

    def _row_gradients(self, name: str, ids: npt.ArrayLike,
                       gradients: npt.ArrayLike) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        import numpy as np
        table = self.table(name)
        number = self.exchange.number(name)
        flat = self.exchange.ids_of(number, ids)
        array = np.asarray(_real(gradients, name), np.float32)
        if array.shape != (*np.shape(ids), table.width):
            raise InvalidArgument(f"table {name!r}: gradients of the shape {list(array.shape)} for {flat.size} ids and rows of "
                                  f"{table.width}")
        return number, flat, np.ascontiguousarray(array.reshape(flat.size, table.width))

    def pull(self) -> dict[str, npt.NDArray[np.float32]]:
        """Fetches and returns the current values: {name: a copy}."""
        self._open_steps().pull()
        return self._values()

    @property
    def values(self) -> dict[str, npt.NDArray[np.float32]]:
        """The values after the last step: {name: a copy}."""
        return self._values()

    def _values(self) -> dict[str, npt.NDArray[np.float32]]:
        session = self.session
        place = session.place
        return {name: session.values(place, index).reshape(self._shapes[index]).copy() for name, index in self._names.items()}

    def progress(self, bar: Callable[..., Any] | None = None, steps: int | None = None, **options: Any) -> Iterator[int]:
        """The positions of the steps to make, up to `steps` or to the end of the job, for a loop that makes one step
        each:

            for step in job.progress(tqdm, 1000):

        bar: tqdm, or a class with its interface, such as tqdm.notebook.tqdm; on the chief it shows the position, which
        is also right after a resume. options: further arguments of the bar.
        """
        return progress.positions(self, bar, steps, options)

    # --- Embedding tables ---

    @property
    def exchange(self) -> Exchange:
        """For integrations: the exchange of rows. Raises Refused before start() or cairn.torch.distribute()."""
        return self.steps.exchange

    @property
    def tables(self) -> dict[str, OpenTable]:
        """The embedding tables by name."""
        return {name: OpenTable(self.exchange, name) for name in self.exchange.numbers}

    def table(self, name: str) -> OpenTable:
        """An embedding table of the job."""
        return OpenTable(self.exchange, name)

    def prefetch(self, batches: Iterable[_Batch], keys: Callable[[_Batch], Mapping[str, Any]]) -> Iterator[_Batch]:
        """Passes the batches on, and looks one batch ahead: the ids that the next batch looks up go to the servers with
        this batch's step, whose answer brings their rows. A step is then one round trip.

        keys: {table: ids, or a sequence of arrays of ids} of a batch. Ids that it leaves out, and those of the first
        batch, are read when they are looked up: it changes no result. Of batches(), the next one is the batch that the
        servers will probably assign.
        """
        return self.exchange.prefetch(batches, keys)

    # --- State ---

    @property
    def version(self) -> int:
        """The number of updates in the values."""
        return self._begun().version

    @property
    def position(self) -> int:
        """The number of this worker's next step, also after a resume: a program may choose its examples by it."""
        return self._begun().position

    @property
    def finished(self) -> bool:
        """Whether the job has made its last update."""
        return self._begun().finished

    def save_checkpoint(self) -> None:
        """On the chief: saves a checkpoint to train_dir now, and returns when it is on the disk."""
        session = self._open_steps().session
        if not self._options.checkpoint_directory:
            raise Refused("save_checkpoint() needs cairn.init(train_dir=...)")
        session.save_checkpoint()

    def stats(self) -> dict[str, int]:
        """Counters of the job, as TensorBoard, W&B and MLflow take them. On the chief."""
        counters = self._open_steps().session.counters()
        return {name: getattr(counters, name)
                for name in ("accepted", "stale", "duplicate", "rejected", "examples", "staleness_max")} | {"version": self.version}

    # --- The end ---

    def close(self, error: BaseException | str | None = None) -> None:
        """Leaves the job with all work done: the chief waits for the other workers, saves a checkpoint if it has a
        train_dir, and ends the servers. With `error`, the job ends with that failure for all workers. A second call
        does nothing."""
        membership = self._end()
        if membership is None:
            return
        if error is None:
            membership.end()
        _open_jobs.discard(self)
        if error is not None:
            membership.leave(str(error))

    def _end(self) -> Steps | Ring | None:
        """The membership that is to be left; None: there is nothing to do."""
        self._closed, self._batches = True, None
        if self._membership is None or not self._membership.made_in_this_process or self not in _open_jobs:
            return None
        return self._membership

    @property
    def closed(self) -> bool:
        """Whether this worker has left the job."""
        return self._closed

    def abandon(self) -> None:
        """Leaves the job, which goes on without this worker. Best effort."""
        membership = self._end()
        if membership is not None:
            _open_jobs.discard(self)
            membership.leave(None)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif isinstance(error, Exception) and not isinstance(error, Error):
            self.close(f"{type(error).__name__}: {error}")
        else:
            self.abandon()

    def __getstate__(self) -> dict[str, Any]:
        raise Refused("a job is a live connection and cannot be pickled: call cairn.init() in each process")


def _real(value: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    import numpy as np
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InvalidArgument(f"{name!r} has numbers of type {array.dtype}, must be real")
    return array


def native_variable(name: str, shape: Sequence[int]) -> _native.Variable:
    variable = _native.Variable()
    variable.name = name
    variable.shape = list(shape)
    return variable


_open_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


@atexit.register
def _leave_open_jobs() -> None:
    for job in list(_open_jobs):
        job.abandon()
