"""Embedding tables: rows of float32 by id, which the servers store and update beside the variables of a job."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cairn import _native
from cairn._options import whole
from cairn.batches import Batches
from cairn.errors import InvalidArgument, MembershipLost, code_number
from cairn.keras_optimizer import native_optimizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Values = npt.NDArray[np.float32]

_Batch = TypeVar("_Batch")


class Normal(NamedTuple):
    """First values with a normal distribution."""

    mean: float = 0.0
    std: float = 1.0


class TruncatedNormal(NamedTuple):
    """First values with a normal distribution, restricted to two standard deviations."""

    mean: float = 0.0
    std: float = 1.0


class Uniform(NamedTuple):
    """First values with a uniform distribution in [low, high)."""

    low: float = -0.05
    high: float = 0.05


class Constant(NamedTuple):
    """Equal first values."""

    value: float = 0.0


FirstValues = Normal | TruncatedNormal | Uniform | Constant


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a job. A row begins to exist with the first update that has a gradient for it; until then it has its
    first values, which depend on the seed, the table's name, the id and the column alone, and takes no memory."""

    name: str
    width: int  # elements of a row
    rows: int | None = None  # ids are in [0, rows); None: any 64-bit integer
    first_values: FirstValues = Normal()
    seed: int = 0
    # SGD, Adam, Adagrad, RowWiseAdagrad, RMSprop or Ftrl: a name, or Keras' object {"class_name": ..., "config":
    # {...}}. It updates a row only when the row has a gradient. None: the job's optimizer.
    optimizer: Any = None

    def description(self) -> _native.Table:
        """For the servers. Raises InvalidArgument, which names the table."""
        table = _native.Table()
        table.name = self.name
        table.width = whole(self.width, f"table {self.name!r}: width", 1)
        table.rows = 0 if self.rows is None else whole(self.rows, f"table {self.name!r}: rows", 1)
        table.seed = whole(self.seed, f"table {self.name!r}: seed", 0, 2**64)
        table.first_values, table.center, table.spread = _distribution(self)
        if self.optimizer is not None:
            try:
                table.optimizer = native_optimizer(self.optimizer)
            except InvalidArgument as error:
                raise InvalidArgument(f"table {self.name!r}: {error}") from None
        return table


def _distribution(table: Table) -> tuple[_native.FirstValues, float, float]:
    values = table.first_values
    if isinstance(values, Constant):
        return _native.FirstValues.CONSTANT, values.value, 0
    if isinstance(values, Uniform):
        return _native.FirstValues.UNIFORM, (values.low + values.high) / 2, (values.high - values.low) / 2
    if isinstance(values, Normal):
        return _native.FirstValues.NORMAL, values.mean, values.std
    if isinstance(values, TruncatedNormal):
        return _native.FirstValues.TRUNCATED_NORMAL, values.mean, values.std
    raise InvalidArgument(f"table {table.name!r}: first_values is {values!r}, must be one of cairn.tables.Normal, "
                          "TruncatedNormal, Uniform and Constant")


class Rows(NamedTuple):
    """Distinct ids and their rows, [id][element]."""

    ids: Ids
    rows: Values


class _Ahead(NamedTuple):
    """The ids of the next batch in a table."""

    batch: Ids
    ids: Ids  # its distinct ones
    positions: npt.NDArray[np.int32]  # of each id of the batch, in `ids`


class Exchange:
    """A worker's exchange of rows with the servers, for integrations such as cairn.torch. Keeps the rows that were read
    since the last step, so that each row is read once, and those that the answer to the last step has brought.

    Tables have the numbers of their order in the job. One thread.
    """

    def __init__(self, session: _native.Session, tables: Sequence[_native.Table]) -> None:
        self.session = session
        self.tables = list(tables)
        self.numbers = {table.name: number for number, table in enumerate(self.tables)}
        # Called when this worker has joined again while it read rows: the values of variables have changed.
        self.on_recovery: Callable[[], None] = lambda: None
        self._unique = _native.UniqueIds()
        self._cached: dict[int, Rows] = {}
        self._cached_at = session.changes
        self._gradients: list[tuple[int, Ids, Values]] = []
        self._next: dict[int, _Ahead] = {}  # whose rows the following steps want
        self._wanted: dict[int, Rows] = {}  # memory for the rows that the step in progress wants
        self._wanted_for: dict[int, _Ahead] = {}
        self._cached_for: dict[int, _Ahead] = {}  # the last step has brought the rows of these

    def number(self, name: str) -> int:
        if name not in self.numbers:
            raise InvalidArgument(f"no table {name!r}; the job has {', '.join(map(repr, self.numbers)) or 'none'}")
        return self.numbers[name]

    def ids_of(self, number: int, ids: Any) -> Ids:
        """`ids` as a flat array of int64. Raises InvalidArgument, which names the table, for anything but integers and
        for an id that the table cannot have."""
        import numpy as np
        table = self.tables[number]
        if hasattr(ids, "detach"):  # torch's, on any device
            ids = ids.detach().cpu()
        array = np.asarray(ids)
        if array.dtype.kind not in "iu" and array.size:
            raise InvalidArgument(f"table {table.name!r}: ids of type {array.dtype}, must be integers")
        flat = np.ascontiguousarray(array.reshape(-1), np.int64)
        if array.dtype == np.uint64 and flat.size and flat.min() < 0:
            raise InvalidArgument(f"table {table.name!r}: id {array.max()}, must be below {2**63}")
        if table.rows and flat.size and flat.view(np.uint64).max() >= table.rows:  # as those, negative ids are large
            bad = flat.min() if flat.min() < 0 else flat.max()
            raise InvalidArgument(f"table {table.name!r}: id {bad}, must be in [0, {table.rows})")
        return flat

    # --- Reading ---

    def read(self, batches: Mapping[int, Ids]) -> dict[int, tuple[Rows, npt.NDArray[np.int32]]]:
        """Reads the rows of these ids as they are now, in one request. For each table: the rows of its distinct ids,
        and where the row of each id is among them. Nothing is kept, and no row is created."""
        found = {}
        for number, batch in batches.items():
            ids, positions = self._unique.compute(batch)
            found[number] = (self._memory(number, ids), positions)
        self._recovering(lambda: self._read([(number, rows) for number, (rows, _) in found.items()]))
        return found

    def look_up(self, batches: Mapping[int, Ids]) -> dict[int, npt.NDArray[np.int32]]:
        """Makes sure that the rows of these ids are among rows(), and returns where the row of each id is there. Reads
        what is missing, in one request."""
        import numpy as np
        while True:
            self._refresh()
            positions, missing = {}, []
            for number, batch in batches.items():
                known = self._cached.get(number)
                if known is None:
                    ids, positions[number] = self._unique.compute(batch)
                    missing.append((number, self._memory(number, ids)))
                    continue
                ahead = self._cached_for.get(number)
                if ahead is not None and np.array_equal(ahead.batch, batch):
                    positions[number] = ahead.positions
                    continue
                count = len(known.ids)
                ids, all_positions = self._unique.compute(np.concatenate([known.ids, batch]))
                positions[number] = all_positions[count:]
                if len(ids) > count:
                    missing.append((number, self._memory(number, ids[count:])))
            if self._recovering(lambda missing=missing: self._read(missing)):  # type: ignore[misc]
                continue
            for number, rows in missing:
                known = self._cached.get(number)
                self._cached[number] = rows if known is None else Rows(np.concatenate([known.ids, rows.ids]),
                                                                       np.concatenate([known.rows, rows.rows]))
            return positions

    def rows(self, number: int) -> Rows:
        """The rows of a table that were looked up since the last step."""
        return self._cached[number]

    def forget(self) -> None:
        """The rows that were looked up belong to a batch that was given up: the next one begins without them, so that
        it adds up gradients in the same order as without that batch."""
        self._cached, self._cached_for = {}, {}

    def _refresh(self) -> None:
        """Replaces what is kept by what the last step has brought, if there was a step since."""
        if self.session.changes == self._cached_at:
            return
        self._cached_at = self.session.changes
        brought = self.session.has_wanted_rows
        self._cached, self._cached_for = (dict(self._wanted), self._wanted_for) if brought else ({}, {})
        self._wanted, self._wanted_for = {}, {}

    def _memory(self, number: int, ids: Ids) -> Rows:
        import numpy as np
        return Rows(ids, np.empty((len(ids), self.tables[number].width), np.float32))

    def _read(self, missing: Sequence[tuple[int, Rows]]) -> None:
        entries = [(number, *rows) for number, rows in missing if len(rows.ids)]
        if entries:
            self.session.read_rows(entries)

    def _recovering(self, call: Callable[[], None]) -> bool:
        """Makes the call; again, if this worker's membership was lost. Returns whether it was."""
        lost = False
        while True:
            try:
                call()
                return lost
            except MembershipLost as failure:
                self.session.recover(code_number(failure), str(failure))
                self.on_recovery()
                lost = True

    # --- Steps ---

    def push(self, gradients: Sequence[tuple[int, Ids, Values]]) -> None:
        """The next step pushes these gradients: the table's number, distinct ids, [id][element]. They must stay
        unchanged until it has ended."""
        self._gradients = list(gradients)

    def want(self, ids: Mapping[str, Any] | None) -> None:
        """The following steps bring the rows of these ids, {table: ids, or a sequence of arrays of ids}."""
        import numpy as np
        self._next = {}
        for name, of_table in (ids or {}).items():
            number = self.number(name)
            parts = of_table if isinstance(of_table, (list, tuple)) else [of_table]
            # A copy: the program may change its arrays.
            batch = np.concatenate([np.empty(0, np.int64), *[self.ids_of(number, part) for part in parts]])
            self._next[number] = _Ahead(batch, *self._unique.compute(batch))

    def send(self) -> None:
        """The step has begun: sends the gradients, and the ids of the rows that it shall bring."""
        if self._gradients:
            self.session.push_rows(self._gradients)
        if not self._next:
            self._wanted_for, self._wanted = {}, {}
            return
        self._wanted_for = {number: ahead for number, ahead in self._next.items() if len(ahead.ids)}
        self._wanted = {number: self._memory(number, ahead.ids) for number, ahead in self._wanted_for.items()}
        if self._wanted:
            self.session.want_rows([(number, *rows) for number, rows in self._wanted.items()])

    def prefetch(self, batches: Iterable[_Batch], keys: Callable[[_Batch], Mapping[str, Any]]) -> Iterator[_Batch]:
        """See Job.prefetch()."""
        if isinstance(batches, Batches):
            yield from batches.look_ahead(lambda batch: self.want(None if batch is None else keys(batch)))
            return
        remaining = iter(batches)
        for batch in remaining:
            break
        else:
            return
        for following in remaining:
            self.want(keys(following))
            yield batch
            batch = following
        self.want(None)
        yield batch


class OpenTable:
    """A table of a job that has begun: Job.table()."""

    def __init__(self, exchange: Exchange, name: str) -> None:
        self._exchange = exchange
        self._number = exchange.number(name)
        self._table = exchange.tables[self._number]

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return self._table.width

    @property
    def rows(self) -> int | None:
        """Ids are in [0, rows). None: any 64-bit integer."""
        return self._table.rows or None

    def read(self, ids: npt.ArrayLike) -> Values:
        """The rows of these ids as they are now, [shape of ids][element]. Creates none: a row that no update has made
        has its first values."""
        import numpy as np
        shape = np.shape(ids)
        (rows, positions), = self._exchange.read({self._number: self._exchange.ids_of(self._number, ids)}).values()
        return rows.rows[positions].reshape(*shape, self.width)

    def contents(self) -> Rows:
        """All rows that training has made, of one version. On the chief; takes the time of a checkpoint."""
        ids, rows = self._exchange.session.read_table(self._number)
        return Rows(ids, rows.reshape(-1, self.width))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes contents() to a file: NAME.npz with the arrays `ids` and `rows`, or NAME.safetensors with the tensors
        that `cairn export` writes for a table, `table/NAME/ids` and `table/NAME/rows`."""
        import numpy as np
        path = os.fspath(path)
        if not path.endswith((".npz", ".safetensors")):
            raise InvalidArgument(f"table {self.name!r}: {path} must end with .npz or .safetensors")
        contents = self.contents()
        if path.endswith(".npz"):
            np.savez(path, ids=contents.ids, rows=contents.rows)
        else:
            _save_safetensors(path, {f"table/{self.name}/ids": ("I64", contents.ids),
                                     f"table/{self.name}/rows": ("F32", contents.rows)})


def _save_safetensors(path: str, tensors: Mapping[str, tuple[str, npt.NDArray[Any]]]) -> None:
    described, offset = {}, 0
    for name, (kind, array) in tensors.items():
        described[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    head = json.dumps(described).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, array in tensors.values():
            file.write(array.tobytes())
