"""JAX on Cairn's servers: pytrees of gradients in, pytrees of parameters out.

    with cairn.init() as job:
        training = cairn.jax.start(job, params, cairn.jax.adamw(1e-3))
        for x, y in batches:
            grads = gradient(training.params, x, y)               # your function, by jax.jit and jax.grad
            training.step(grads, examples=len(x))

The optimizer runs on the servers, so there is no optimizer state here. step() waits for other workers: call it outside
of jax.jit.
"""

from __future__ import annotations

from typing import Any

from cairn import _native
from cairn._frameworks import framework
from cairn._options import EXAMPLES_LIMIT, whole
from cairn.errors import InvalidArgument, Refused
from cairn.job import CLOSED, Job, native_variable
from cairn.keras_optimizer import native_optimizer
from cairn.steps import Result

_jax: Any = framework("jax", "cairn.jax", "jax")
_np: Any = framework("numpy", "cairn.jax", "numpy")


def start(job: Job, params: Any, optimizer: Any = "SGD", *, mode: str = "sync", max_staleness: int | None = None,
          updates: int = 0) -> Training:
    """Joins the job, whose variables are the leaves of the pytree `params`. All workers begin with the chief's values,
    or with those of a checkpoint: they are in the result's `params`.

    optimizer: sgd(), adam() or adamw(), which compute what optax's do; the name of a Keras optimizer, or Keras' object
    {"class_name": ..., "config": {...}}. mode: "sync", "async" or "ssp" (bounded staleness, which needs max_staleness).
    updates: the length of the job; 0: until the chief closes it.

    Raises InvalidArgument for a leaf that is not of floating-point numbers and for an unknown optimizer, and the errors
    of connecting.
    """
    return Training(job, params, optimizer, mode=mode, max_staleness=max_staleness, updates=updates)


class Training:
    """Made by start()."""

    def __init__(self, job: Job, params: Any, optimizer: Any, *, mode: str, max_staleness: int | None, updates: int) -> None:
        leaves, self._structure = _jax.tree_util.tree_flatten_with_path(params)
        self._names = [_name(path) for path, _ in leaves]
        self._leaves = [leaf for _, leaf in leaves]
        for name, leaf in zip(self._names, self._leaves, strict=True):
            if not _jax.numpy.issubdtype(_dtype(leaf), _jax.numpy.floating):
                raise InvalidArgument(f"the parameter {name} is {_dtype(leaf)}, must be of floating-point numbers: keep the "
                                      "others outside of `params`")
        if hasattr(optimizer, "init") and hasattr(optimizer, "update"):
            raise InvalidArgument("the optimizer is one of optax, which servers cannot run: give cairn.jax.sgd(), adam() or "
                                  "adamw(), or the name of a Keras optimizer")
        rule = native_optimizer(optimizer)

        def fill(flat: Any) -> None:
            _np.concatenate([_numbers(leaf).reshape(-1) for leaf in self._leaves], out=flat)

        variables = [native_variable(name, _np.shape(leaf)) for name, leaf in zip(self._names, self._leaves, strict=True)]
        self.job = job
        self.result: Result | None = None  # of the last step
        self._steps = job.open(variables, rule, mode=mode, max_staleness=max_staleness, updates=updates,
                               first_values=fill)
        self._session = self._steps.session
        self._refresh()
        self._steps.on_values = self._refresh

    @property
    def params(self) -> Any:
        """The values after the last step, in the form and with the types of start()'s `params`."""
        return self._params

    def step(self, grads: Any, examples: int | None = None, *, learning_rate: float | None = None) -> Any:
        """Pushes gradients of `params`, a pytree of the same form, which are the mean over `examples` examples: their
        weight in the update. By default it is the number in the current batch of Job.batches(), or 1. Waits for the
        update and returns the new `params`. With 0 examples the gradients do not count.

        learning_rate: the chief's is in force from this update on, in place of the optimizer's; other workers' is
        ignored. A schedule of optax is a function that gives it: schedule(job.version).
        """
        if self.job.closed:
            raise Refused(CLOSED)
        self._steps.settle_interrupted()
        weight = whole((self._steps.batch_examples or 1) if examples is None else examples, "examples", 0, EXAMPLES_LIMIT)
        for index, gradient in enumerate(self._checked(grads)):
            self._session.gradients(index)[:] = _numbers(gradient).reshape(-1)
        if learning_rate is not None and self.job.is_chief:
            group = _native.GroupSettings()
            group.learning_rate = float(learning_rate)
            self._session.set_groups([group])
        self.result = self._steps.make(lambda: self._steps.begin(weight))
        self._refresh()
        return self._params

    def pull(self) -> Any:
        """Fetches and returns the current values."""
        self.job.pull()  # calls _refresh()
        return self._params

    def _refresh(self) -> None:
        self._params = self._values()

    def _checked(self, grads: Any) -> list[Any]:
        leaves: list[Any] = _jax.tree_util.tree_leaves(grads)
        structure = _jax.tree_util.tree_structure(grads)
        if structure != self._structure:
            raise InvalidArgument(f"the gradients are {structure}, the parameters {self._structure}")
        for name, gradient, leaf in zip(self._names, leaves, self._leaves, strict=True):
            if isinstance(gradient, _jax.core.Tracer):
                raise InvalidArgument("step() was called within jax.jit or jax.grad: call it with their result")
            if _dtype(gradient).kind == "c":
                raise InvalidArgument(f"the gradient of {name} is {_dtype(gradient)}, must be real")
            if _np.shape(gradient) != _np.shape(leaf):
                raise InvalidArgument(f"the gradient of {name} has the shape {list(_np.shape(gradient))}, the parameter "
                                      f"{list(_np.shape(leaf))}")
        return leaves

    def _values(self) -> Any:
        place = self._session.place
        values = []
        for index, leaf in enumerate(self._leaves):
            # A copy: JAX may use the memory of an array that it is given, and the session writes there again.
            array = _np.array(self._session.values(place, index).reshape(_np.shape(leaf)), _dtype(leaf))
            values.append(_jax.device_put(array, getattr(leaf, "sharding", None)))
        return _jax.tree_util.tree_unflatten(self._structure, values)


def sgd(learning_rate: float, momentum: float = 0, nesterov: bool = False) -> dict[str, Any]:
    """Computes what optax.sgd does."""
    return {"class_name": "torch.SGD", "config": {"lr": learning_rate, "momentum": momentum, "nesterov": nesterov}}


def adam(learning_rate: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> dict[str, Any]:
    """Computes what optax.adam does."""
    return {"class_name": "torch.Adam", "config": {"lr": learning_rate, "beta1": b1, "beta2": b2, "eps": eps}}


def adamw(learning_rate: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
          weight_decay: float = 1e-4) -> dict[str, Any]:
    """Computes what optax.adamw does."""
    return {"class_name": "torch.AdamW", "config": {"lr": learning_rate, "beta1": b1, "beta2": b2, "eps": eps,
                                                    "weight_decay": weight_decay}}


def _name(path: Any) -> str:
    """"layers/0/w" for ['layers'][0]['w']; a pytree that is one array has the name "params"."""
    return _jax.tree_util.keystr(path, simple=True, separator="/") or "params"


def _dtype(leaf: Any) -> Any:
    return _np.asarray(leaf).dtype if not hasattr(leaf, "dtype") else leaf.dtype


def _numbers(leaf: Any) -> Any:
    return _np.asarray(leaf).astype(_np.float32, copy=False)
