"""Embedding modules whose rows are in tables on the servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from cairn.errors import InvalidArgument, Refused
from cairn.job import Job
from cairn.tables import Exchange, FirstValues, Normal, Rows, Table
from cairn.torch.pooling import Bags, Found, Pooled, checked_pooling, pool
from cairn.torch.rules import row_optimizer


class _Weight(NamedTuple):
    """Rows of a table as a leaf of autograd's graph, [row][element]: the lookups of a step share it."""

    number: int
    ids: Any  # [row]
    rows: Any  # the memory of `tensor`
    used: Any  # [row]: whether it was looked up, and not as padding
    tensor: torch.Tensor


def check_no_tables(model: torch.nn.Module) -> None:
    """Raises InvalidArgument if a module of the model has its rows on servers."""
    for path, module in model.named_modules():
        if isinstance(module, TableModule):
            raise InvalidArgument(f"the embedding table {module.configs[0].name!r} ({path}) needs servers: mode='allreduce' has "
                                  "none; use torch.nn.Embedding")


class Lookups:
    """The lookups of a model's modules, and the gradients of their rows. Made by distribute()."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._modules: list[TableModule] = []
        self.tables: list[Table] = []
        names: dict[str, str] = {}
        for path, module in model.named_modules():
            if not isinstance(module, TableModule):
                continue
            self._modules.append(module)
            for config in module.configs:
                if config.name in names:
                    raise InvalidArgument(f"two modules have a table named {config.name!r}: {names[config.name]} and {path}; "
                                          "use one module in both places")
                names[config.name] = path
                self.tables.append(config.table(optimizer))
        self._exchange: Exchange | None = None
        self._weights: dict[int, _Weight] = {}  # of the lookups since the last step, by the number of the table
        self._with_gradients: list[_Weight] = []

    def attach(self, exchange: Exchange) -> None:
        self._exchange = exchange
        for module in self._modules:
            module.lookups = self

    @property
    def exchange(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def __call__(self, requests: Sequence[tuple[_Config, torch.Tensor]], training: bool) -> list[Found]:
        """The rows of the ids of each request; each names another table. One request to the servers reads them all."""
        exchange = self.exchange
        batches = {}
        for config, ids in requests:
            if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
                raise InvalidArgument(f"table {config.name!r}: ids of type {ids.dtype}, must be integers")
            number = exchange.number(config.name)
            batches[number] = exchange.ids_of(number, ids)
        shared = training and torch.is_grad_enabled()
        found = []
        if shared:
            positions = exchange.look_up(batches)
            weights = {number: self._shared_weight(number) for number in batches}
        else:
            read = exchange.read(batches)
            positions = {number: places for number, (_, places) in read.items()}
            # In no other lookup.
            weights = {number: self._make_weight(number, rows) for number, (rows, _) in read.items()}
        for (config, ids), (number, batch) in zip(requests, batches.items(), strict=True):
            weight, places = weights[number], positions[number]
            padding = _first_place(batch, places, config.padding_idx)
            weight.used[places] = True
            if padding is not None:
                weight.used[padding] = False
                weight.rows[padding] = 0
            tensor = weight.tensor if torch.is_grad_enabled() else weight.tensor.detach()
            found.append(Found(tensor.to(ids.device), torch.from_numpy(places).to(ids.device), padding))
        return found

    def _shared_weight(self, number: int) -> _Weight:
        rows = self.exchange.rows(number)
        weight = self._weights.get(number)
        if weight is None or weight.rows is not rows.rows:  # the first lookup, or more rows have been read
            weight = self._weights[number] = self._make_weight(number, rows)
        return weight

    def _make_weight(self, number: int, rows: Rows) -> _Weight:
        import numpy as np
        used = np.zeros(len(rows.ids), np.bool_)
        weight = _Weight(number, *rows, used, torch.from_numpy(rows.rows).requires_grad_())
        if torch.is_grad_enabled():
            # Without a reference to the tensor: rows in a cycle would stay until Python's garbage collector comes.
            def on_gradient(tensor: torch.Tensor) -> None:
                if all(tensor is not other.tensor for other in self._with_gradients):
                    self._with_gradients.append(_Weight(number, *rows, used, tensor))
            weight.tensor.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]
        return weight

    # --- Steps ---

    def finite(self) -> bool:
        """Whether no gradient has an infinity or a NaN."""
        return all(bool(torch.isfinite(weight.tensor.grad).all()) for weight in self._with_gradients
                   if weight.tensor.grad is not None)

    def collect(self, scale: torch.Tensor | None) -> None:
        """The gradients since the last step, divided by `scale`, are those of the next one."""
        by_table: dict[int, list[_Weight]] = {}
        for weight in self._with_gradients:
            if weight.tensor.grad is not None:
                by_table.setdefault(weight.number, []).append(weight)
        gradients = []
        for number, weights in by_table.items():
            ids, gradient = _merged(weights)
            if scale is not None:
                gradient = gradient / scale.to(gradient.device)
            gradients.append((number, ids, gradient.contiguous().numpy()))
        self.exchange.push(gradients)

    def zero_grad(self) -> None:
        for weight in self._with_gradients:
            weight.tensor.grad = None
        self._with_gradients = []

    def end_step(self) -> None:
        """The rows that were looked up are not the current ones any more."""
        self.zero_grad()
        self._weights = {}


def _first_place(batch: Any, positions: Any, padding_idx: int | None) -> int | None:
    if padding_idx is None:
        return None
    found = (batch == padding_idx).nonzero()[0]
    return int(positions[found[0]]) if len(found) else None


def _merged(weights: Sequence[_Weight]) -> tuple[Any, torch.Tensor]:
    """The ids that were looked up in a table, and the sums of their gradients."""
    import numpy as np

    from cairn import _native
    parts = []
    for weight in weights:
        assert weight.tensor.grad is not None
        gradient = weight.tensor.grad.detach().to(torch.float32)
        if weight.used.all():
            parts.append((weight.ids, gradient))
        else:
            parts.append((weight.ids[weight.used], gradient[torch.from_numpy(weight.used)]))
    if len(parts) == 1:
        return parts[0]
    ids, positions = _native.UniqueIds().compute(np.concatenate([ids for ids, _ in parts]))
    total = torch.zeros(len(ids), parts[0][1].shape[1])
    total.index_add_(0, torch.from_numpy(positions), torch.cat([gradient for _, gradient in parts]))
    return ids, total


@dataclasses.dataclass
class _Config:
    """A table as a module describes it."""

    name: str
    num_embeddings: int | None
    embedding_dim: int
    first_values: FirstValues = Normal()
    seed: int = 0
    optimizer: Any = None
    lr: float | None = None
    padding_idx: int | None = None

    def table(self, optimizer: torch.optim.Optimizer) -> Table:
        """For a job whose variables have this optimizer."""
        rule = row_optimizer(self.name, self.optimizer, self.lr, optimizer)
        return Table(self.name, self.embedding_dim, self.num_embeddings, self.first_values, self.seed, rule)


class TableModule(torch.nn.Module):
    """A module whose rows are in tables. It has no parameters: distribute() finds it in the model."""

    def __init__(self, configs: Sequence[_Config]) -> None:
        super().__init__()
        self.configs = list(configs)
        self.lookups: Lookups | None = None  # after distribute()
        for config in self.configs:  # wrong values are refused here, where the program made them
            Table(config.name, config.embedding_dim, config.num_embeddings, config.first_values, config.seed).description()

    def _look_up(self, requests: Sequence[tuple[_Config, torch.Tensor]]) -> list[Found]:
        if self.lookups is None:
            raise Refused(f"the table {self.configs[0].name!r} is on no server yet: call cairn.torch.distribute() first")
        return self.lookups(requests, self.training)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lookups": None}  # a copy belongs to no job

    def extra_repr(self) -> str:
        return ", ".join(f"{config.name!r}: {config.num_embeddings or 'any id'} of {config.embedding_dim}"
                         for config in self.configs)


class Embedding(TableModule):
    """torch.nn.Embedding whose rows are in a table on the servers, which update the rows that a batch has looked up.

    num_embeddings: ids are in [0, num_embeddings); None: any 64-bit integer is an id.
    name: the table's, unique in the model.
    optimizer: "SGD", "Adam", "Adagrad", "RowWiseAdagrad", "RMSprop" or "Ftrl", with torch's defaults, or Keras' object
    {"class_name": ..., "config": {...}}. None: the optimizer of distribute(), applied by rows.
    lr: None: the rate of the first parameter group. The rate follows the schedule of that group.
    first_values, seed: of a row that no update has made: cairn.tables.Normal, TruncatedNormal, Uniform or Constant.
    padding_idx: an id whose row is zeros and is not trained.
    """

    def __init__(self, num_embeddings: int | None, embedding_dim: int, *, name: str, optimizer: Any = None,
                 lr: float | None = None, first_values: FirstValues = Normal(), seed: int = 0,
                 padding_idx: int | None = None) -> None:
        super().__init__([_Config(name, num_embeddings, embedding_dim, first_values, seed, optimizer, lr,
                                  _checked_padding(name, num_embeddings, padding_idx))])
        self.embedding_dim = embedding_dim

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[*] ids to [*, embedding_dim]."""
        _check_tensor(self.configs[0].name, ids)
        flat = ids.reshape(-1)
        found, = self._look_up([(self.configs[0], flat)])
        rows = pool([Pooled(self.configs[0].name, 1, "sum", Bags(flat, len(flat)), found)])
        return rows.view(*ids.shape, self.embedding_dim)


class EmbeddingBag(TableModule):
    """torch.nn.EmbeddingBag whose rows are in a table on the servers. Arguments as those of Embedding.

    mode: "sum", "mean", "max" or "sqrtn" (the sum, divided by the root of the sum of the squares of the weights).
    include_last_offset: the last offset is the number of ids. padding_idx: an id that is in no bag.
    """

    def __init__(self, num_embeddings: int | None, embedding_dim: int, *, name: str, mode: str = "mean", optimizer: Any = None,
                 lr: float | None = None, first_values: FirstValues = Normal(), seed: int = 0,
                 padding_idx: int | None = None, include_last_offset: bool = False) -> None:
        super().__init__([_Config(name, num_embeddings, embedding_dim, first_values, seed, optimizer, lr,
                                  _checked_padding(name, num_embeddings, padding_idx))])
        self.mode = checked_pooling(name, mode)
        self.include_last_offset = include_last_offset

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """ids: [bag, n] without offsets, or [n] with the offsets of the bags. per_sample_weights: in the shape of
        `ids`, with the modes "sum" and "sqrtn". Returns [bag, embedding_dim]; an empty bag has zeros."""
        config = self.configs[0]
        _check_tensor(config.name, ids)
        bags = _bags_of(config.name, ids, offsets, per_sample_weights, self.include_last_offset)
        if per_sample_weights is not None and per_sample_weights.shape != ids.shape:
            raise InvalidArgument(f"table {config.name!r}: per_sample_weights of the shape {list(per_sample_weights.shape)} for "
                                  f"ids of the shape {list(ids.shape)}")
        found, = self._look_up([(config, bags.ids)])
        return pool([Pooled(config.name, 1, self.mode, bags, found)])


def _checked_padding(name: str, num_embeddings: int | None, padding_idx: int | None) -> int | None:
    if padding_idx is None or num_embeddings is None:
        return padding_idx
    if not -num_embeddings <= padding_idx < num_embeddings:
        raise InvalidArgument(f"table {name!r}: padding_idx is {padding_idx}, must be in [{-num_embeddings}, {num_embeddings})")
    return padding_idx % num_embeddings


def _check_tensor(name: str, ids: Any) -> None:
    if not isinstance(ids, torch.Tensor):
        raise InvalidArgument(f"table {name!r}: ids are a {type(ids).__name__}, must be a torch.Tensor")


def _bags_of(name: str, ids: torch.Tensor, offsets: torch.Tensor | None, weights: torch.Tensor | None,
             include_last_offset: bool) -> Bags:
    if weights is not None:
        weights = weights.reshape(-1)
    if ids.dim() == 2:
        if offsets is not None:
            raise InvalidArgument(f"table {name!r}: ids of the shape {list(ids.shape)} have no offsets")
        return Bags(ids.reshape(-1), ids.shape[0], None, weights)
    if ids.dim() != 1 or offsets is None or offsets.dim() != 1:
        raise InvalidArgument(f"table {name!r}: bags are ids of the shape [bag, n], or [n] and offsets of the shape [bag]; ids "
                              f"have the shape {list(ids.shape)}, offsets {None if offsets is None else list(offsets.shape)}")
    ends = offsets if include_last_offset else torch.cat([offsets, offsets.new_tensor([len(ids)])])
    if not len(ends) or int(ends[0]) != 0 or int(ends[-1]) != len(ids) or bool((ends[1:] < ends[:-1]).any()):
        raise InvalidArgument(f"table {name!r}: offsets must rise from 0 to the number of ids, {len(ids)}")
    return Bags(ids, len(ends) - 1, (ends[1:] - ends[:-1]).to(torch.int64), weights)


@dataclasses.dataclass
class EmbeddingBagConfig:
    """A table of an EmbeddingBagCollection, with the names of TorchRec's class."""

    name: str
    embedding_dim: int
    num_embeddings: int | None  # None: any 64-bit integer is an id
    feature_names: Sequence[str]
    pooling: str = "sum"
    optimizer: Any = None
    lr: float | None = None
    first_values: FirstValues = Normal()
    seed: int = 0


class KeyedTensor:
    """The pooled features of a batch, with the calls of TorchRec's class."""

    def __init__(self, keys: Sequence[str], lengths: Sequence[int], values: torch.Tensor) -> None:
        self._keys = list(keys)
        self._lengths = list(lengths)
        self._values = values

    def keys(self) -> list[str]:
        return self._keys

    def values(self) -> torch.Tensor:
        """[example, sum of the lengths]."""
        return self._values

    def length_per_key(self) -> list[int]:
        return self._lengths

    def offset_per_key(self) -> list[int]:
        offsets = [0]
        for length in self._lengths:
            offsets.append(offsets[-1] + length)
        return offsets

    def to_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._keys, torch.split(self._values, self._lengths, dim=1), strict=True))

    def __getitem__(self, key: str) -> torch.Tensor:
        index = self._keys.index(key)
        begin = sum(self._lengths[:index])
        return self._values[:, begin:begin + self._lengths[index]]


class EmbeddingBagCollection(TableModule):
    """Bags of several features in several tables, as TorchRec's EmbeddingBagCollection. The rows of all tables come
    with one request, and those that several features of a table look up come once.

    tables: EmbeddingBagConfig, or TorchRec's class of this name. is_weighted: the ids of the features have weights.
    """

    def __init__(self, tables: Iterable[Any], is_weighted: bool = False) -> None:
        self._tables = list(tables)
        super().__init__([_Config(table.name, table.num_embeddings, table.embedding_dim,
                                  getattr(table, "first_values", Normal()), getattr(table, "seed", 0),
                                  getattr(table, "optimizer", None), getattr(table, "lr", None)) for table in self._tables])
        self.is_weighted = is_weighted
        self._poolings = [checked_pooling(table.name, table.pooling) for table in self._tables]
        of_features = [feature for table in self._tables for feature in table.feature_names]
        # As TorchRec: a feature of several tables has one key for each.
        self._keys = [feature if of_features.count(feature) == 1 else f"{feature}@{table.name}"
                      for table in self._tables for feature in table.feature_names]

    def forward(self, features: Any) -> KeyedTensor:
        """`features`: TorchRec's KeyedJaggedTensor, or {feature: ids [example, n], or (ids, offsets), or (ids, offsets,
        weights)}. Returns the pooled features in the order of the tables."""
        read = _features_of(features)
        bags = [self._bags(table, read) for table in self._tables]
        found = self._look_up([(config, of_table.ids) for config, of_table in zip(self.configs, bags, strict=True)])
        values = pool([Pooled(table.name, len(table.feature_names), pooling, of_table, rows)
                       for table, pooling, of_table, rows in zip(self._tables, self._poolings, bags, found, strict=True)])
        lengths = [table.embedding_dim for table in self._tables for _ in table.feature_names]
        return KeyedTensor(self._keys, lengths, values)

    def ids(self, features: Any) -> dict[str, list[torch.Tensor]]:
        """The ids that each table looks up, for Job.prefetch()."""
        read = _features_of(features)
        return {table.name: [self._feature(table, name, read).ids for name in table.feature_names] for table in self._tables}

    def _feature(self, table: Any, name: str, read: Callable[[str], Bags | None]) -> Bags:
        bags = read(name)
        if bags is None:
            raise InvalidArgument(f"table {table.name!r}: the batch has no feature {name!r}")
        if self.is_weighted and bags.weights is None:
            raise InvalidArgument(f"table {table.name!r}: feature {name!r} has no weights, but is_weighted is set")
        return bags if self.is_weighted else bags._replace(weights=None)

    def _bags(self, table: Any, read: Callable[[str], Bags | None]) -> Bags:
        parts = [self._feature(table, name, read) for name in table.feature_names]
        if len(parts) == 1:
            return parts[0]
        if len({part.size for part in parts}) > 1:
            counts = ", ".join(f"{name!r} has {part.size}" for name, part in zip(table.feature_names, parts, strict=True))
            raise InvalidArgument(f"table {table.name!r}: features with different numbers of bags: {counts}")
        equal = all(part.lengths is None for part in parts) and len({len(part.ids) for part in parts}) == 1
        weights = [part.weights for part in parts if part.weights is not None]
        return Bags(torch.cat([part.ids for part in parts]), sum(part.size for part in parts),
                    None if equal else torch.cat([part.all_lengths() for part in parts]),
                    torch.cat(weights) if weights else None)


def _features_of(features: Any) -> Callable[[str], Bags | None]:
    """Finds the bags of a feature in a batch; None: it has none."""
    if isinstance(features, Mapping):
        return lambda name: _feature_of(name, features[name]) if name in features else None
    if not all(hasattr(features, method) for method in ("keys", "values", "lengths")):
        raise InvalidArgument(f"a batch is {type(features).__name__}, must be a mapping or have the calls of KeyedJaggedTensor")
    keys = list(features.keys())
    values, lengths = features.values(), features.lengths().to(torch.int64)
    weights = features.weights_or_none() if hasattr(features, "weights_or_none") else None
    examples = len(lengths) // max(len(keys), 1)
    ends = [0, *lengths.cumsum(0)[examples - 1::examples].tolist()] if examples else [0] * (len(keys) + 1)
    single = bool((lengths == 1).all())

    def bags(name: str) -> Bags | None:
        if name not in keys:
            return None
        place = keys.index(name)
        part = slice(ends[place], ends[place + 1])
        return Bags(values[part], examples, None if single else lengths[place * examples:(place + 1) * examples],
                    None if weights is None else weights[part])
    return bags


def _feature_of(name: str, feature: Any) -> Bags:
    ids, offsets, weights = (*feature, None)[:3] if isinstance(feature, (tuple, list)) else (feature, None, None)
    return _bags_of(name, ids, offsets, weights, include_last_offset=False)
