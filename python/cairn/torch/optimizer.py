"""An optimizer of torch whose rule runs on the servers: distribute()."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch.utils.dlpack import from_dlpack

from cairn import _native
from cairn._options import as_number
from cairn.errors import InvalidArgument, MembershipLost, Refused
from cairn.job import Job
from cairn.torch.all_reduce import AllReduceOptimizer
from cairn.torch.embedding import Lookups, check_no_tables
from cairn.torch.gradients import Gradient, SendingOptimizer, gpu_of
from cairn.torch.rules import Rule
from cairn.torch.tensors import check_memory, check_modules, check_type, floating_buffers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# [parameter group]: the learning rate and the other numbers; [trained parameter]: whether the update may change it.
_Settings = tuple[list[tuple[float | None, dict[str, float]]], list[bool]]


@overload
def distribute(optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, mode: Literal["allreduce"],
               max_grad_norm: float | None = None, buffers: str = "mean", eager: bool = True,
               stateful: Sequence[Any] = ()) -> AllReduceOptimizer: ...


@overload
def distribute(optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *,
               mode: Literal["sync", "async", "ssp"] = "sync", max_staleness: int | None = None,
               max_grad_norm: float | None = None, buffers: str = "mean", updates: int = 0, eager: bool = True,
               skip_unused: bool = False) -> DistributedOptimizer: ...


@overload
def distribute(optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, mode: str,
               max_staleness: int | None = None, max_grad_norm: float | None = None, buffers: str = "mean",
               updates: int = 0, eager: bool = True, skip_unused: bool = False,
               stateful: Sequence[Any] = ()) -> DistributedOptimizer | AllReduceOptimizer: ...


def distribute(optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, mode: str = "sync",
               max_staleness: int | None = None, max_grad_norm: float | None = None, buffers: str = "mean",
               updates: int = 0, eager: bool = True, skip_unused: bool = False,
               stateful: Sequence[Any] = ()) -> DistributedOptimizer | AllReduceOptimizer:
    """Joins the job with the variables of `model`, and returns the optimizer for the training loop in place of
    `optimizer`, whose rule, parameter groups and rates it takes over. Call it after loading values into the model; all
    workers then have the chief's values, or those of the checkpoint that the job resumes from.

    mode: "sync" (an update is the mean over all workers' examples), "async" or "ssp" (bounded staleness, which needs
    max_staleness). Or "allreduce": without servers, the workers average their gradients around a ring, and each runs
    the optimizer itself; `stateful` are then objects with state_dict() and load_state_dict(), such as schedulers, whose
    state a worker takes over with the values when it begins or returns. max_grad_norm: the norm of the mean gradient
    over all parameters is limited, as by torch.nn.utils.clip_grad_norm_. buffers: "mean" (floating-point buffers, such
    as the averages of BatchNorm, are the mean over the workers' examples after each step, unless they begin with
    infinities, as masks do) or "local" (each worker keeps its own). updates: the length of the job; 0: until the chief
    closes it. eager: gradients are sent while backward goes on; False: by step(). skip_unused: an update leaves the
    parameters that had no gradient on the chief as they are, as torch does, and ignores what others have for them: for
    models whose workers use the same parameters in a step. Otherwise their gradients are zeros, and momentum and decay
    continue.

    Raises InvalidArgument for an optimizer, a parameter or a setting that it names, and the errors of connecting.
    """
    for name, value, kind, wanted in (("optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer"),
                                      ("model", model, torch.nn.Module, "torch.nn.Module"), ("job", job, Job, "cairn.Job")):
        if not isinstance(value, kind):
            raise InvalidArgument(f"{name} has the type {type(value).__name__}, must be a {wanted}")
    check_modules(model)
    if max_grad_norm is not None:
        norm = as_number(max_grad_norm)
        if norm is None or not norm > 0:
            raise InvalidArgument(f"max_grad_norm is {max_grad_norm!r}, must be a number above 0")
        max_grad_norm = float(norm)
    if mode == "allreduce":
        if max_staleness is not None or updates or skip_unused:
            raise InvalidArgument("max_staleness, updates and skip_unused need servers: mode='allreduce' has none")
        check_no_tables(model)
        return AllReduceOptimizer(optimizer, model, job, max_grad_norm=max_grad_norm, buffers=buffers, eager=eager,
                                  stateful=stateful)
    if stateful:
        raise InvalidArgument(f"stateful is for mode='allreduce', but mode is {mode!r}")
    return DistributedOptimizer(optimizer, model, job, mode=mode, max_staleness=max_staleness, max_grad_norm=max_grad_norm,
                                buffers=buffers, updates=updates, eager=eager, skip_unused=skip_unused)


class _Parameter(Gradient):
    """A parameter of the model, or a buffer, and the views of the memory that travels."""

    def __init__(self, name: str, tensor: torch.Tensor, index: int, group: int | None) -> None:
        super().__init__(name, tensor, index)
        self.group = group  # of the optimizer's parameter groups; None: not trained
        self.values: tuple[torch.Tensor, torch.Tensor] = (tensor, tensor)  # set by attach()
        self.installed = (0, 0)  # data_ptr() and _version of the tensor when the values were installed
        self.used = True  # whether it had a gradient in the last step

    def attach(self, session: _native.Session) -> None:
        shape = self.tensor.shape
        self.memory = from_dlpack(session.gradients(self.index)).view(shape)
        first, second = (from_dlpack(session.values(place, self.index)).view(shape) for place in (0, 1))
        self.values = (first, second)

    def install(self, place: int) -> None:
        """Makes the values in `place` those of the tensor: by reference where it can be, without a copy."""
        if self.in_place:
            self.tensor.data = self.values[place]
            # A graph that was kept must not compute with values that it did not see.
            torch.autograd.graph.increment_version(self.tensor)
        else:
            with torch.no_grad():
                # Copies from pinned memory do not wait: DeviceCopies.values_installed().
                self.tensor.copy_(self.values[place], non_blocking=self.on_gpu)


class DistributedOptimizer(SendingOptimizer):
    """Made by distribute(). Learning-rate schedulers take it as they take any optimizer; what they and the program
    change in `param_groups` on the chief is in force on the servers from the step on.

    A parameter without a part in the loss gets a gradient of zeros, unless skip_unused is set. A parameter with
    requires_grad=False keeps its values.

    Gradients are final when backward() has added them up as often as in the step before: until then nothing is sent.
    Another number in one step costs time and nothing else. What cannot be right raises: a gradient that was changed
    after it was sent (by clip_grad_norm_: use max_grad_norm), or values that the program wrote into a parameter.
    """

    _trained: list[_Parameter]
    _averaged: list[_Parameter]

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, mode: str,
                 max_staleness: int | None, max_grad_norm: float | None, buffers: str, updates: int, eager: bool,
                 skip_unused: bool, rule: Rule | None = None) -> None:
        self._rule = Rule(optimizer) if rule is None else rule
        _check_no_state(optimizer.state)
        super().__init__(optimizer, job, eager)
        self._skip_unused = skip_unused
        self._parameters = _parameters(model, self.param_groups)
        self._averaged = [_Parameter(name, tensor, len(self._parameters) + i, None)
                          for i, (name, tensor) in enumerate(floating_buffers(model, buffers))]
        self._all = [*self._parameters, *self._averaged]
        self._trained = [p for p in self._parameters if p.group is not None]
        self._in_place = any(p.in_place for p in self._parameters)  # the program can write into the session's values
        gpu = gpu_of(self._trained)
        check_memory([(parameter.name, parameter.tensor) for parameter in self._parameters])
        variables = [_variable(p) for p in self._all]
        self._begins = [0, *itertools.accumulate(variable.num_elements for variable in variables)]
        for number, parameter in enumerate(self._trained):
            variables[parameter.index].group = number
        for variable in variables:
            if variable.moving_average_momentum is not None:
                variable.group = len(self._trained)
        self._groups = max(variable.group for variable in variables) + 1
        self._lookups = Lookups(model, optimizer)
        self._steps = steps = job.open(variables, self._description(max_grad_norm), mode=mode, max_staleness=max_staleness,
                                       updates=updates, skip_empty_updates=True, tables=self._lookups.tables,
                                       first_values=self._write_first_values)
        self._session = steps.session
        steps.on_values, steps.on_recovery, steps.on_empty_step = self._install, self._on_recovery, self._step_without_examples
        self._lookups.attach(steps.exchange)
        # The rate that the rows of tables follow, that of the first parameter group; None: unknown.
        self._rate = self._rule.base_rate(self.param_groups[0]) if job.version == 0 else None
        self._last_settings: _Settings | None = None  # as the session knows them
        self._described: tuple[int, Any] | None = None  # the version and the fingerprint of the last state_dict()
        for parameter in self._all:
            parameter.attach(self._session)
        self._watch(gpu, others=[values for p in self._all for values in p.values])
        self._install()

    # --- The loop ---

    def _found_infinity(self) -> bool:
        return super()._found_infinity() or (getattr(self, "found_inf", None) is not None and not self._lookups.finite())

    def _finish(self, examples: int) -> None:
        if self._steps.lost:
            self._leave_out()
            return
        if hasattr(self, "found_inf"):
            self._send_late("a GradScaler scales the gradients")
        if self._session.changes != self._installed_at:  # a step was interrupted after the values had come
            self._install()
        self._check_unchanged()
        settings = self._settings(ended=True)
        if self._begun is not None and self._begun[1][0] != settings[0]:
            self._send_late("param_groups changed between backward() and step()")
        elif self._begun is not None and self._begun[1] != settings and self.job.is_chief:
            self._cancel()  # other parameters than in the step before have a gradient
        if self._begun is not None and self._begun[0] != examples:
            self._cancel()
        if self._begun is None:
            self._begin(examples, settings)
        self._copy_rest()
        self._lookups.collect(getattr(self, "grad_scale", None))
        self._steps.exchange.send()
        try:
            self._await_update(examples, settings)
        except BaseException:  # the gradients have been sent, and may still be: the next ones are others
            self._lookups.end_step()
            super().zero_grad()
            raise
        finally:
            self._count_backwards()
        self._examples = examples or self._examples

    def _await_update(self, examples: int, settings: _Settings) -> None:
        if self._copies is not None:
            self._copies.finish()
        try:  # if the step must be repeated, all gradients are where they were
            self.result = self._steps.finish(lambda: self._begin_step(examples, settings))
        finally:
            self._begun = None
        self._end_step()

    def _step_without_examples(self) -> None:
        settings = self._settings(ended=False)
        self._begin(0, settings)
        self._steps.exchange.push([])
        self._steps.exchange.send()
        self._await_update(0, settings)

    def _begin(self, examples: int, settings: _Settings) -> None:
        self._steps.settle_interrupted()
        self._begin_step(examples, settings)

    def _begin_step(self, examples: int, settings: _Settings) -> None:
        if self.job.is_chief and settings != self._last_settings:
            self._session.set_groups(self._group_settings(settings))
            self._last_settings = settings
        self._set_rate_of_rows(settings)
        self._steps.begin(examples)
        self._begun = (examples, settings)

    def _set_rate_of_rows(self, settings: _Settings) -> None:
        """Rows follow the schedule of the first parameter group. Variables have the rates of their groups."""
        rate = settings[0][0][0]
        if self.job.is_chief and self._lookups.tables and rate is not None and rate != self._rate:
            with contextlib.suppress(MembershipLost):  # the end of the step recovers it
                self._session.set_learning_rate(rate)
                self._rate = rate

    def _on_recovery(self) -> None:
        """This worker has joined again while it read rows: a step that had begun is lost, and values have changed."""
        if self._copies is not None:
            self._copies.cancel()
        self._forget()
        self._install()

    def _leave_out(self) -> None:
        """Ends a step whose batch belongs to other values than the current ones, because this worker has joined again
        while it read rows. Nothing of it is pushed."""
        self._cancel()
        self.result = self._steps.leave_out()
        for parameter in self._trained:
            parameter.backwards = 0
        self._end_step()

    def _end_step(self) -> None:
        self._lookups.end_step()
        if self.result is None or self.result.outcome != "accepted":
            self._rate = None  # servers that were restored to a checkpoint have the rate of that time
        self._install()

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._lookups.zero_grad()

    # --- Gradients ---

    def _batch_examples(self) -> int | None:
        return self._steps.batch_examples

    def _begin_early(self) -> None:
        self._begin(self._steps.batch_examples or self._examples, self._settings(ended=False))

    def _announce(self, index: int) -> None:
        self._session.announce(index)

    def _changed_gradient(self) -> int | None:
        return self._session.changed_gradient()

    def _take_back(self) -> None:
        self._session.cancel_step()

    def _holds_back(self) -> bool:
        return self._steps.lost

    def _check_unchanged(self) -> None:
        """Raises Refused if what was sent, or what the servers sent, was changed here."""
        self._check_sent()
        written = self._session.changed_value()
        for parameter in self._parameters:
            if (parameter.index == written
                    or (parameter.tensor.data_ptr(), parameter.tensor._version) != parameter.installed):
                self._cancel()
                raise Refused(f"the program has changed the values of {parameter.name!r}, which are the servers': load values "
                              "before distribute(), and move or convert the model before it; for other values, use a copy of the model")

    # --- Values ---

    def _install(self) -> None:
        try:
            self._install_all()
        except BaseException:  # Ctrl-C must not leave some parameters with the values before
            self._install_all()
            raise

    def _install_all(self) -> None:
        place = self._session.place
        for parameter in self._all:
            parameter.install(place)
        if self._in_place:
            self._session.installed()
        for parameter in self._parameters:  # after all: views of one tensor count their versions together
            parameter.installed = (parameter.tensor.data_ptr(), parameter.tensor._version)
        self._installed_at = self._session.changes
        if self._copies is not None:
            self._copies.values_installed()

    def _write_first_values(self, flat: npt.NDArray[np.float32]) -> None:
        values = torch.from_numpy(flat)
        begin = 0
        for parameter in self._all:
            end = begin + parameter.tensor.numel()
            values[begin:end].copy_(parameter.tensor.detach().reshape(-1))
            begin = end

    # --- Settings ---

    def _description(self, max_grad_norm: float | None) -> _native.Optimizer:
        description = self._rule.description(self.param_groups[0])
        if max_grad_norm is not None:
            description.hyperparameters = {**description.hyperparameters, "global_clipnorm": max_grad_norm}
        return description

    def _settings(self, ended: bool) -> _Settings:
        """`ended`: whether backward has ended. Before that, a parameter is used if it was in the last step."""
        groups = [(self._rule.learning_rate(group), self._rule.hyperparameters(group)) for group in self.param_groups]
        if ended:
            for parameter in self._trained:
                parameter.used = parameter.tensor.grad is not None
        return groups, [p.tensor.requires_grad and (p.used or not self._skip_unused) for p in self._trained]

    def _group_settings(self, settings: _Settings) -> list[_native.GroupSettings]:
        """[group of the servers]: every trained parameter is a group, and the last one has the rest."""
        of_servers = []
        for parameter, trained in zip(self._trained, settings[1], strict=True):
            assert parameter.group is not None
            group = _native.GroupSettings()
            group.learning_rate, group.hyperparameters = settings[0][parameter.group]
            group.untouched = not trained
            of_servers.append(group)
        return [*of_servers, *[_native.GroupSettings() for _ in range(self._groups - len(of_servers))]]

    def state_dict(self) -> dict[str, Any]:
        """In torch's form, which its optimizers can load. On the chief, until the job is closed, with the servers'
        state, which is fetched. On other workers with the parameter groups alone."""
        described = super().state_dict()
        if self.job.closed or not self.job.is_chief:
            return described
        self._steps.settle_interrupted()
        self._cancel()  # step() sends the gradients again
        slots, updates = self._session.optimizer_state()
        arrays = {name: torch.from_numpy(array) for name, array in slots.items()}
        places = {id(p.tensor): (number, p) for number, p in enumerate(self._trained)}
        tensors = [(tensor, group) for group in self.param_groups for tensor in group["params"]]
        for index, (tensor, group) in enumerate(tensors):
            number, parameter = places[id(tensor)]
            begin = self._begins[parameter.index]
            of_parameter = {name: array[begin:begin + tensor.numel()].view(tensor.shape).to(tensor, copy=True)
                            for name, array in arrays.items()}
            if updates[number] > 0:
                described["state"][index] = self._rule.state(of_parameter, updates[number], group)
        self._described = self.job.version, _fingerprint(described["state"])
        return described

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the parameter groups. State of earlier steps is refused, unless it is what the servers have: other
        libraries load what state_dict() has just given them."""
        if self._described is None or self._described != (self.job.version, _fingerprint(state_dict["state"])):
            _check_no_state(state_dict["state"])
        super().load_state_dict({**state_dict, "state": {}})


def _parameters(model: torch.nn.Module, groups: Iterable[dict[str, Any]]) -> list[_Parameter]:
    group_of = {id(tensor): number for number, group in enumerate(groups) for tensor in group["params"]}
    found: list[_Parameter] = []
    for name, tensor in model.named_parameters():
        check_type(name, tensor)
        found.append(_Parameter(name, tensor, len(found), group_of.pop(id(tensor), None)))
    if group_of:
        raise InvalidArgument(f"the optimizer has {len(group_of)} parameters that the model does not have")
    return found


def _check_no_state(state: Any) -> None:
    # Adagrad has state before its first step, and counts no step in it.
    if any(values and values.get("step", 1) != 0 for values in state.values()):
        raise InvalidArgument("the optimizer has state of earlier steps, but moments are on the servers: resume a job by "
                              "train_dir, or begin with a new optimizer")


def _fingerprint(state: Any) -> dict[Any, dict[str, Any]]:
    """Checksums that tell the state of one moment from that of another."""
    def of(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        memory: Any = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return value.shape, value.dtype, zlib.crc32(memory)
    return {index: {name: of(value) for name, value in values.items()} for index, values in state.items()}


def _variable(parameter: _Parameter) -> _native.Variable:
    variable = _native.Variable()
    variable.name = parameter.name
    variable.shape = list(parameter.tensor.shape)
    if not isinstance(parameter.tensor, torch.nn.Parameter):
        variable.moving_average_momentum = 0.0  # the mean of what the workers push
    elif parameter.group is None:
        variable.moving_average_momentum = 1.0  # constant
    return variable
