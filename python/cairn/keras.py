"""Keras 3 models, with the torch backend, on Cairn's servers: model.fit() stays as it is.

    with cairn.init() as job:
        optimizer = cairn.keras.Optimizer(keras.optimizers.Adam(1e-3), model, job)
        model.compile(optimizer, loss="sparse_categorical_crossentropy")
        model.fit(x, y)                                           # this worker's part of the data

The optimizer's rule runs on the servers, with Keras' arithmetic.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn import _native
from cairn._frameworks import framework
from cairn.errors import InvalidArgument, Refused
from cairn.job import Job
from cairn.keras_optimizer import native_optimizer

if TYPE_CHECKING:
    from cairn.torch.optimizer import DistributedOptimizer

_keras: Any = framework("keras", "cairn.keras", "keras torch")


@_keras.saving.register_keras_serializable("cairn")
class Optimizer(_keras.optimizers.Optimizer):  # type: ignore[misc]
    """Has the rule, the learning rate or schedule, clipping and decay of `optimizer`, a Keras optimizer.

    Joins the job when the model has variables: now, or at the start of fit(). All workers then have the chief's values,
    or those of the checkpoint that the job resumes from. Each batch counts by its examples. What callbacks assign to
    the learning rate on the chief is in force from the next step on. Non-trainable variables that change, such as the
    averages of BatchNormalization, are the mean over the workers' examples after each step.

    options: those of cairn.torch.distribute(): mode, max_staleness, updates, eager, buffers.

    A saved model has the Keras optimizer, without its state: moments are on the servers.

    Raises InvalidArgument for a backend other than torch, and for what the servers cannot do: a function as the
    learning rate, constraints of variables, a loss_scale_factor.
    """

    def __init__(self, optimizer: Any, model: Any, job: Job, **options: Any) -> None:
        if _keras.backend.backend() != "torch":
            raise InvalidArgument(f"Keras has the backend {_keras.backend.backend()!r}, cairn.keras needs torch: set the "
                                  "environment variable KERAS_BACKEND=torch before `import keras`")
        worker = _Worker(_keras.optimizers.get(optimizer), model, job, options)
        super().__init__(worker.schedule or float(worker.optimizer.learning_rate), name=worker.optimizer.name)
        self._worker = worker
        if model.built:
            self.build(model.trainable_variables)

    @property
    def job(self) -> Job:
        return self._worker.job

    def build(self, variables: Sequence[Any]) -> None:
        """Joins the job. Called by Keras when the model's variables are known."""
        super().build(variables)
        self._worker.join(self)
        self.iterations.assign(self.job.version)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Makes a step: waits for the update and puts the new values in place."""
        if not self.built:
            raise Refused("the optimizer has not joined the job: build the model first, or train by fit()")
        self._worker.step(grads, self._trainable_variables if trainable_variables is None else trainable_variables)
        self.iterations.assign(self.job.version)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Warns if Keras would replace the values by the moving averages of use_ema, which the servers keep."""
        if self._worker.optimizer.use_ema:
            warnings.warn("use_ema: Keras replaces a model's values by their moving averages at the end of fit(); here the "
                          "model keeps the values of the last update, and the averages stay on the servers", stacklevel=2)

    def get_config(self) -> dict[str, Any]:
        kept = self._worker.optimizer
        if self._worker.schedule is None:
            kept.learning_rate = float(self.learning_rate)
        return {"optimizer": _keras.optimizers.serialize(kept)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """The Keras optimizer: a model that was read from a file belongs to no job."""
        return _keras.optimizers.deserialize(config["optimizer"], custom_objects)


class _Worker:
    """The parts of an Optimizer that Keras does not look into when it saves a model."""

    def __init__(self, optimizer: Any, model: Any, job: Job, options: Mapping[str, Any]) -> None:
        self.optimizer = optimizer
        self.job = job
        rate = optimizer._learning_rate
        self.schedule = rate if isinstance(rate, _keras.optimizers.schedules.LearningRateSchedule) else None
        if callable(rate) and self.schedule is None:
            raise InvalidArgument(f"learning_rate is a function ({rate!r}), which servers cannot call: give a number or a "
                                  "Keras schedule")
        if model.dtype_policy.name == "mixed_float16":
            raise InvalidArgument("the dtype policy mixed_float16 scales the loss, which the servers do not know: use "
                                  "mixed_bfloat16")
        if optimizer.loss_scale_factor is not None:
            raise InvalidArgument("the servers do not know loss_scale_factor: use the dtype policy mixed_bfloat16")
        self._batches = optimizer.gradient_accumulation_steps or 1  # of a step
        self._model = model
        self._options = dict(options)
        self._applied = 0  # batches since the last step
        self._examples = 0  # of these batches, as far as they are known
        self._sums: dict[int, Any] = {}  # [id of a variable]: its gradients' sum over these batches
        self._distributed: DistributedOptimizer | None = None

    def join(self, shown: Any) -> None:
        import torch

        from cairn.torch.optimizer import DistributedOptimizer
        variables = _Variables(self._model)
        decays = [self.optimizer._use_weight_decay(variable) for variable in variables.trained]
        groups = [{"params": [v.value for v, decay in zip(variables.trained, decays, strict=True) if decay == wanted],
                   "decay": wanted} for wanted in (True, False)]
        stand_in = torch.optim.Optimizer([group for group in groups if group["params"]], {})
        options = {"mode": "sync", "max_staleness": None, "max_grad_norm": None, "buffers": "mean", "updates": 0,
                   "eager": self._batches == 1, "skip_unused": False, **self._options}
        module: Any = variables  # has what DistributedOptimizer reads of a torch.nn.Module
        self._distributed = DistributedOptimizer(stand_in, module, self.job, rule=_rule(self, shown), **options)
        train_step = self._model.train_step

        def counting_train_step(data: Any) -> Any:
            self._examples += len(_keras.tree.flatten(data)[0])
            return train_step(data)

        self._model.train_step = counting_train_step

    def step(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        assert self._distributed is not None
        for gradient, variable in zip(grads, variables, strict=True):
            if self._batches > 1 and gradient is not None:
                gradient = self._sums[id(variable)] = self._sums.get(id(variable), 0) + gradient / self._batches
            if gradient is not variable.value.grad:  # computed in another way than by backward()
                variable.value.grad = gradient
        self._applied += 1
        if self._applied < self._batches:
            return
        try:
            self._distributed.step(examples=self._examples or None)
        finally:
            self._applied = self._examples = 0
            self._sums.clear()
        if self.job.finished:
            self._model.stop_training = True


def _rule(worker: _Worker, shown: Any) -> Any:
    from cairn.torch.rules import Rule

    class KerasRule(Rule):
        """The rule of a Keras optimizer; `shown` has the learning rate that callbacks see and set."""

        def __init__(self) -> None:
            optimizer = worker.optimizer
            config = {key: value for key, value in optimizer.get_config().items() if key != "gradient_accumulation_steps"}
            self._description = native_optimizer({"class_name": type(optimizer).__name__, "config": config})
            self.name = self._description.name
            self._decays = bool(optimizer.weight_decay)

        def description(self, group: Mapping[str, Any]) -> _native.Optimizer:
            return self._description

        def base_rate(self, group: Mapping[str, Any]) -> float | None:
            return self.learning_rate(group)

        def learning_rate(self, group: Mapping[str, Any]) -> float | None:
            return float(shown.learning_rate) if worker.schedule is None else None

        def hyperparameters(self, group: Mapping[str, Any]) -> dict[str, float]:
            return {"weight_decay": 0.0} if self._decays and not group["decay"] else {}

    return KerasRule()


class _Variables:
    """The variables of a Keras model by their paths, in the form in which torch.nn.Module gives parameters and buffers.
    Parameters are those that may be trained, whether their layers are frozen now or not."""

    def __init__(self, model: Any) -> None:
        layers = model._flatten_layers()
        self.trained = _unique(v for layer in layers for v in layer._trainable_variables)
        self._others = _unique(v for layer in layers for v in layer._non_trainable_variables)
        paths = [variable.path for variable in [*self.trained, *self._others]]
        for path in paths:
            if paths.count(path) > 1:
                raise InvalidArgument(f"the model has several variables {path!r}: give each layer a name of its own")
        for variable in self.trained:
            if variable.constraint is not None:
                raise InvalidArgument(f"{variable.path!r} has a constraint, which cairn.keras does not support")

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        return iter(())

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return ((variable.path, variable.value) for variable in self.trained)

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        # Keras makes parameters of these, too, and assigns to them in place.
        return ((variable.path, variable.value.data) for variable in self._others)


def _unique(variables: Iterator[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())
