"""Converts between a worker's named arrays and the servers' arenas: one flat float32 array for each server.

A slice is the part [row_begin, row_end) of a variable along its first axis, at `offset` elements in its server's arena.
"""

import collections
import heapq

import numpy as np

_MIN_SPLIT_BYTES = 256 << 10
_MAX_BANDS = 256

# A sparse gradient: rows of a variable; the gradient of all other rows is zero. `ids` [n], integers; `values`
# [n, *shape of a row]. Rows that occur several times are summed.
Rows = collections.namedtuple("Rows", "ids values")


def float32(value, what):
    """Returns `value` as a float32 array of the same shape. Raises ValueError for values that are not real numbers, and
    for finite numbers that float32 cannot represent."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what}: numbers of type {array.dtype} are not supported, only real numbers")
    with np.errstate(over="ignore"):
        result = np.asarray(array, "<f4", order="C")
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and np.any(np.isinf(result) & np.isfinite(array)):
        raise ValueError(f"{what}: {array[np.isinf(result) & np.isfinite(array)][0]} is too large for float32")
    return result


def dense_gradient(name, gradient, shape):
    """Returns a gradient, given as an array or as Rows, as a float32 array of the variable's shape. None means zero."""
    if gradient is None:
        return np.zeros(shape, "<f4")
    if isinstance(gradient, Rows):
        return _dense_rows(name, gradient, shape)
    dense = float32(gradient, f"gradient of '{name}'")
    if dense.shape != shape:
        raise ValueError(f"gradient of '{name}': shape {dense.shape}, registered {shape}")
    return dense


def _dense_rows(name, rows, shape):
    if not shape:
        raise ValueError(f"rows of '{name}', which is a scalar")
    ids, values = np.asarray(rows.ids), float32(rows.values, f"rows of '{name}'")
    if ids.size == 0:
        ids = ids.astype("i8")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(f"rows of '{name}': ids must be integers of shape (n,), found {ids.dtype} of shape {ids.shape}")
    expected = (len(ids), *shape[1:])
    if values.shape != expected:
        raise ValueError(f"rows of '{name}': values have shape {values.shape}, must be {expected} for {len(ids)} ids")
    if ids.size and not (0 <= ids.min() and ids.max() < shape[0]):
        raise ValueError(f"rows {ids.min()} to {ids.max()} of '{name}', which has {shape[0]}")
    dense = np.zeros(shape, "<f4")
    np.add.at(dense, ids, values)
    return dense


def elements(piece):
    """Returns the number of elements of a slice."""
    return _row_elements(piece["shape"]) * (piece["row_end"] - piece["row_begin"])


def gather(values, slices):
    """Returns the arena of a server: the concatenated elements of its slices."""
    pieces = [_as_rows(values[s["name"]])[s["row_begin"]:s["row_end"]].ravel() for s in slices]
    return np.concatenate(pieces) if pieces else np.empty(0, "<f4")


def scatter(arenas, slices_of_servers, shapes):
    """The inverse of gather(): returns {name: array} from the arenas of all servers."""
    values = {name: np.empty(shape, "<f4") for name, shape in shapes.items()}
    for arena, slices in zip(arenas, slices_of_servers):
        for s in slices:
            rows = _as_rows(values[s["name"]])[s["row_begin"]:s["row_end"]]
            rows[...] = arena[s["offset"]:s["offset"] + rows.size].reshape(rows.shape)
    return values


def place(shapes, servers):
    """Returns the slices of each server, [server], balanced by bytes. Large variables are split only between bands of
    rows: a norm is a sum over bands, so it does not depend on how a variable is split."""
    sizes = {name: 4 * _count(shape) for name, shape in shapes.items()}
    limit = max(_MIN_SPLIT_BYTES, -(-sum(sizes.values()) // servers))
    parts = []
    for position, (name, shape) in enumerate(shapes.items()):
        rows = _rows(shape)
        band = max(1, -(-rows // _MAX_BANDS))
        bands = -(-rows // band)
        count = max(1, min(-(-sizes[name] // limit), bands, servers))
        edges = [min(rows, bands * i // count * band) for i in range(count + 1)]
        parts += [(position, {"name": name, "shape": list(shape), "row_begin": a, "row_end": b})
                  for a, b in zip(edges, edges[1:])]
    placed = [[] for _ in range(servers)]
    lightest = [(0, server) for server in range(servers)]  # a heap of (elements, server)
    for part in sorted(parts, key=lambda part: elements(part[1]), reverse=True):
        load, server = lightest[0]
        heapq.heapreplace(lightest, (load + elements(part[1]), server))
        placed[server].append(part)
    return [[s for _, s in sorted(parts, key=lambda part: (part[0], part[1]["row_begin"]))] for parts in placed]


def _count(shape):
    count = 1
    for extent in shape:
        count *= int(extent)
    return count


def _rows(shape):
    return shape[0] if shape else 1


def _row_elements(shape):
    return _count(shape[1:])


def _as_rows(array):
    """Returns a view of shape [rows, elements of a row]."""
    return array.reshape(_rows(array.shape), _row_elements(array.shape))
