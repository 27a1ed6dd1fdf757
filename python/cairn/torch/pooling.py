"""Pools the rows of bags of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from cairn import _native
from cairn.errors import InvalidArgument

_POOLINGS = ("sum", "mean", "max", "sqrtn")


class Found(NamedTuple):
    """Where a lookup finds its rows."""

    weight: torch.Tensor  # [row][element]
    positions: torch.Tensor  # of the row of each id
    padding: int | None  # the row of padding_idx


class Bags(NamedTuple):
    """Bags of ids, one feature after another."""

    ids: torch.Tensor
    size: int  # the number of bags
    lengths: torch.Tensor | None = None  # [bag]; None: all are equal
    weights: torch.Tensor | None = None  # [id]

    @property
    def single(self) -> bool:
        """Whether each bag has one id, as far as that is known without a look at the lengths."""
        return self.lengths is None and len(self.ids) == self.size

    def all_lengths(self) -> torch.Tensor:
        if self.lengths is not None:
            return self.lengths
        return torch.full((self.size,), len(self.ids) // max(self.size, 1), device=self.ids.device)

    def ends(self) -> torch.Tensor:
        """[bag + 1]"""
        lengths = self.all_lengths()
        return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


class Pooled(NamedTuple):
    """The bags of a table's features, and how they become one row each."""

    name: str  # of the table
    features: int
    mode: str
    bags: Bags
    found: Found


def checked_pooling(name: str, pooling: Any) -> str:
    text = str(getattr(pooling, "value", pooling)).lower()
    if text not in _POOLINGS:
        raise InvalidArgument(f"table {name!r}: {pooling!r} must be one of {', '.join(_POOLINGS)}")
    return text


def pool(tables: Sequence[Pooled]) -> torch.Tensor:
    """[example][element]: the pooled features of all tables side by side."""
    for table in tables:
        if table.bags.weights is not None and table.mode not in ("sum", "sqrtn"):
            raise InvalidArgument(f"table {table.name!r}: per_sample_weights need the mode 'sum' or 'sqrtn', not {table.mode!r}")
    examples = {table.bags.size // table.features for table in tables}
    if len(examples) == 1 and all(_has_sums(table) for table in tables):
        return _sums(tables, examples.pop())
    parts: list[torch.Tensor] = []
    for table in tables:
        parts.extend(_pool_one(table).view(table.features, -1, table.found.weight.shape[1]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


# --- Sums in the memory of the host, of all tables at once ---


def _has_sums(table: Pooled) -> bool:
    weight, weights = table.found.weight, table.bags.weights
    return (table.mode != "max" and table.found.padding is None and weight.device.type == "cpu"
            and (weights is None or not weights.requires_grad))


def _sums(tables: Sequence[Pooled], examples: int) -> torch.Tensor:
    bags = _native.BagSums(examples)
    for table in tables:
        lengths, factors = table.bags.lengths, _factors(table.mode, table.bags)
        bags.add(table.features, table.found.positions.numpy(), None if lengths is None else lengths.cumsum(0).numpy(),
                 None if factors is None else factors.contiguous().numpy())
    width = sum(table.features * table.found.weight.shape[1] for table in tables)
    sums: torch.Tensor = _Sums.apply(bags, (examples, width), *[table.found.weight for table in tables])
    return sums


def _factors(mode: str, bags: Bags) -> torch.Tensor | None:
    """[id] What the row of each id is multiplied by. None: nothing."""
    if mode == "sum" or (bags.single and bags.weights is None):
        return None if bags.weights is None else bags.weights.detach().to(torch.float32)
    lengths = bags.all_lengths()
    if mode == "mean":
        return (1 / lengths.to(torch.float32)).repeat_interleave(lengths)
    weights = torch.ones(len(bags.ids), dtype=torch.float32, device="cpu") if bags.weights is None else bags.weights.detach().to(torch.float32)
    return weights / _roots(weights * weights, bags).repeat_interleave(lengths)


def _roots(squares: torch.Tensor, bags: Bags) -> torch.Tensor:
    """[bag] The roots of the sums; 1 in place of 0."""
    sums = torch.segment_reduce(squares, "sum", offsets=bags.ends().to(torch.int64), unsafe=True)
    return torch.where(sums == 0, 1, sums).sqrt()


class _Sums(torch.autograd.Function):
    """Replaces an operation for each table, and the concatenation of their results."""

    @staticmethod
    def forward(ctx: Any, bags: _native.BagSums, shape: tuple[int, int], *weights: torch.Tensor) -> torch.Tensor:
        ctx.bags = bags
        ctx.shapes = [weight.shape for weight in weights]
        sums = torch.empty(shape, dtype=torch.float32, device="cpu")
        bags.sum([weight.detach().numpy() for weight in weights], sums.numpy())
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sums: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = [torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in ctx.shapes]
        ctx.bags.add_gradients(of_sums.contiguous().numpy(), [gradient.numpy() for gradient in gradients])
        return None, None, *gradients


# --- Everything else, by torch's operations ---


def _pool_one(table: Pooled) -> torch.Tensor:
    """[bag][element]"""
    bags, found, mode = table.bags, table.found, table.mode
    if not len(found.weight):  # all bags are empty
        return found.weight.new_zeros(bags.size, found.weight.shape[1])
    weights = None if bags.weights is None else bags.weights.to(found.weight.dtype)
    if weights is None and bags.single:
        return functional.embedding(found.positions, found.weight, found.padding)  # faster: bags of one id
    pooled: torch.Tensor = functional.embedding_bag(
        found.positions, found.weight, bags.ends().to(found.positions.dtype), mode="sum" if mode == "sqrtn" else mode,
        per_sample_weights=weights, include_last_offset=True, padding_idx=found.padding)
    if mode != "sqrtn":
        return pooled
    squares = torch.ones_like(found.positions, dtype=pooled.dtype) if weights is None else weights * weights
    if found.padding is not None:
        squares = squares * (found.positions != found.padding)
    return pooled / _roots(squares, bags)[:, None]
