"""An optimizer of torch that runs in every worker, on the mean of their gradients: distribute(mode="allreduce")."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from cairn import _native
from cairn.errors import InvalidArgument, MembershipLost, Refused, code_number
from cairn.job import Job, Result
from cairn.torch.tensors import check_type, floating_buffers, is_plain, weakly

_log = logging.getLogger("cairn")

_USED = "cairn.used"  # the variable that says which parameters have a gradient, on some worker with examples


class _Gradient:
    """A trained parameter: its variable, and the memory in which its gradient travels."""

    def __init__(self, name: str, tensor: torch.Tensor, index: int) -> None:
        self.name = name
        self.tensor = tensor
        self.index = index  # of the variable
        self.memory = tensor  # set when the ring has been formed
        self.usual_backwards = 0  # gradients that a step adds up, as seen in the last one
        self.backwards = 0  # in this step
        self.sent: tuple[torch.Tensor, int] | None = None  # tensor.grad and its _version when it was sent in this step


class AllReduceOptimizer(torch.optim.Optimizer):
    """Made by distribute(mode="allreduce"). Has the parameter groups and the state of the optimizer that it was made
    of, whose step() each worker runs on the mean gradient: schedulers, state_dict() and hooks act as in torch.

    After step(), the `grad` of a parameter is the mean over all workers. A parameter that no worker used has none, and
    is left as it is.
    """

    # torch.amp.GradScaler then leaves it to step() to divide by the scale and to leave out a step with infinities.
    _step_supports_amp_scaling = True

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, max_grad_norm: float | None,
                 buffers: str, eager: bool, stateful: Sequence[Any]) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidArgument("LBFGS evaluates its closure several times in a step, which all-reduce does not support")
        if buffers not in ("mean", "local"):
            raise InvalidArgument(f"buffers is {buffers!r}, must be 'mean' or 'local'")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._inner = optimizer
        self._share()
        self.job = job
        self.result: Result | None = None  # of the last step
        self.examples: int | None = None  # of a step() that is called without them, as the loops of other libraries do
        self._model = model
        self._stateful = list(stateful)
        self._max_grad_norm = max_grad_norm
        self._eager = eager
        self._buffers = floating_buffers(model) if buffers == "mean" else []
        self._gradients = _gradients(model, optimizer, first=1 + len(self._buffers))
        self._by_tensor = {id(g.tensor): g for g in self._gradients}
        self._examples = 1  # of the last step: the next one probably has as many
        self._begun: int | None = None  # the examples of the step in progress
        self._unsettled = False  # a step was sent, and its end was not waited for
        self._means: dict[int, list[torch.Tensor]] = {}  # [address]: views of the memory of a mean
        variables = [_variable(_USED, [len(self._gradients)]), *[_variable(name, tensor.shape) for name, tensor in self._buffers],
                     *[_variable(g.name, g.tensor.shape) for g in self._gradients]]
        self._sizes = [variable.num_elements for variable in variables]
        self._shapes = [variable.shape for variable in variables]
        kind = type(optimizer)
        groups = ", ".join(str(len(group["params"])) for group in self.param_groups)
        described = (f"{kind.__module__}.{kind.__qualname__} with groups of {groups} parameters, buffers={buffers}, "
                     f"max_grad_norm={max_grad_norm}")
        self._ring = job.open_all_reduce(variables, described, weakly(self._save), weakly(self._load))
        job.on_join_others = self._join_others
        memory = [from_dlpack(self._ring.gradients(i)).view(shape) for i, shape in enumerate(self._shapes)]
        self._used, self._buffer_memory = memory[0], memory[1:1 + len(self._buffers)]
        for gradient in self._gradients:
            gradient.memory = memory[gradient.index]
            frozen = not gradient.tensor.requires_grad
            gradient.tensor.requires_grad_()  # torch registers hooks for no others; it may be unfrozen later
            hook = weakly(self._on_gradient)
            gradient.tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            gradient.tensor.requires_grad_(not frozen)

    # --- The loop ---

    def step(self, closure: Callable[[], Any] | None = None, examples: int | None = None) -> Any:
        """Waits for the mean of all workers' gradients, and makes a step of the optimizer with it.

        examples: the number of examples of this worker's gradient, which is their mean: its weight. By default it is
        the attribute `examples`, if the program has set it; otherwise all workers' gradients have the same weight. With
        0 the gradient does not count; a step without any examples changes nothing. Returns what `closure` returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if examples is None:
            examples = self.examples
        weight = 1 if examples is None else examples
        if isinstance(weight, bool) or int(weight) != weight or weight < 0:
            raise InvalidArgument(f"examples is {weight!r}, must be a whole number of at least 0")
        found = getattr(self, "found_inf", None)
        self._finish(0 if found is not None and bool(found) else int(weight))
        return loss

    def _finish(self, examples: int) -> None:
        if hasattr(self, "found_inf") and self._eager:
            self._eager = False
            _log.info("a GradScaler scales the gradients: step() sends them from now on")
        self._check_unchanged()
        if self._begun is not None and (self._begun != examples or not self._eager):
            self._cancel()
        self._settle()
        if self._begun is None:
            self._begin(examples)
        scale = getattr(self, "grad_scale", None)
        self._used.copy_(torch.tensor([float(g.tensor.grad is not None) for g in self._gradients]))
        for memory, (_, tensor) in zip(self._buffer_memory, self._buffers, strict=True):
            memory.copy_(tensor)
        for gradient in self._gradients:
            if gradient.sent is None:
                self._copy(gradient, scale)
        try:
            self._await_mean(examples)
        except BaseException:  # the gradients have been sent, and may still be: the next ones are others
            self.zero_grad()
            raise
        finally:
            for gradient in self._gradients:
                gradient.usual_backwards, gradient.backwards = gradient.backwards, 0
        self._examples = examples or self._examples

    def _begin(self, examples: int, done: bool = False) -> None:
        self._ring.begin_step(examples, done)
        self._begun = examples

    def _await_mean(self, examples: int, done: bool = False) -> bool:
        """Ends the step, and repeats it if a worker was lost. Returns whether all workers are done."""
        self._unsettled = True
        while True:
            try:
                step = self._ring.finish_step()
                break
            except MembershipLost as failure:
                if self._recover(failure):
                    self._end_step("rejoined")
                    return False
                self._begin(examples, done)
        self._end_step("accepted")
        if step.examples:
            self._apply()
        return step.done

    def _end_step(self, outcome: str) -> None:
        self._begun, self._unsettled = None, False
        for gradient in self._gradients:
            gradient.sent = None
        self.result = Result(outcome, self._ring.version, 0)

    def _apply(self) -> None:
        used, *mean = self._mean()
        with torch.no_grad():
            for (_, tensor), value in zip(self._buffers, mean, strict=False):
                tensor.copy_(value)
        tensors = []
        for gradient, is_used in zip(self._gradients, used.tolist(), strict=True):
            value = mean[gradient.index - 1]
            tensor = gradient.tensor
            if not is_used:
                tensor.grad = None
                continue
            tensor.grad = value if is_plain(tensor) else value.to(tensor)
            tensors.append(tensor)
        if self._max_grad_norm is not None:
            self._ring.await_sent()
            torch.nn.utils.clip_grad_norm_(tensors, self._max_grad_norm)
        self._inner.step()
        self._ring.await_sent()  # the program may change the means from here on

    def _mean(self) -> list[torch.Tensor]:
        """The mean of each variable."""
        flat = from_dlpack(self._ring.mean())
        if flat.data_ptr() not in self._means:
            ends = itertools.accumulate(self._sizes)
            self._means[flat.data_ptr()] = [flat[end - size:end].view(shape)
                                            for end, size, shape in zip(ends, self._sizes, self._shapes, strict=True)]
        return self._means[flat.data_ptr()]

    def _join_others(self) -> None:
        """Takes part in the others' steps, without examples, until no worker has more."""
        if self._begun is not None and not self._unsettled:
            self._cancel()
        self._settle()
        done = False
        while not done:
            self._begin(0, done=True)
            done = self._await_mean(0, done=True)

    # --- Steps that do not end as they should ---

    def _settle(self) -> None:
        """Ends a step that was sent and then interrupted, for example by Ctrl-C."""
        if not self._unsettled:
            return
        gradients = [g.tensor.grad for g in self._gradients]
        self._await_mean(self._begun or 0)
        for gradient, value in zip(self._gradients, gradients, strict=True):
            gradient.tensor.grad = value
        _log.warning("an interrupted step has ended; the gradients of this one belong to the values before it")

    def _cancel(self) -> None:
        """Takes back what this step has sent: all workers connect again, and step() sends it."""
        if self._begun is None:
            return
        _log.info("a gradient that had been sent is taken back: all workers repeat the step")
        self._means.clear()
        self._ring.cancel_step()
        self._begun = None
        for gradient in self._gradients:
            gradient.sent = None

    def _recover(self, failure: MembershipLost) -> bool:
        """Connects all workers again. Returns whether this one has taken over the state of another."""
        self._means.clear()
        return self._ring.recover(code_number(failure), str(failure))

    def _check_unchanged(self) -> None:
        for gradient in self._gradients:
            if gradient.sent is not None and (gradient.tensor.grad is not gradient.sent[0]
                                              or gradient.sent[0]._version != gradient.sent[1]):
                self._cancel()
                raise Refused(f"the gradient of {gradient.name!r} was changed after it had been sent: limit norms by "
                              "distribute(max_grad_norm=...), or send by step(): distribute(eager=False)")

    # --- Gradients ---

    def _on_gradient(self, tensor: torch.Tensor) -> None:
        """A backward() has added to the gradient of `tensor`."""
        if self.job.closed:
            return
        gradient = self._by_tensor[id(tensor)]
        gradient.backwards += 1
        if gradient.sent is not None:  # one more than usual
            self._cancel()
        if not self._eager or self._unsettled or gradient.backwards != gradient.usual_backwards:
            return
        if self._begun is None:
            self._begin(self._examples)
        self._copy(gradient, None)
        self._ring.announce(gradient.index)
        assert tensor.grad is not None
        gradient.sent = (tensor.grad, tensor.grad._version)

    def _copy(self, gradient: _Gradient, scale: torch.Tensor | None) -> None:
        """Copies the gradient into the memory that travels, which is its own from then on."""
        value = gradient.tensor.grad
        if value is None:
            gradient.memory.zero_()
            return
        if value.is_sparse:
            value = value.to_dense()
        if value is not gradient.memory:
            gradient.memory.copy_(value)
        if scale is not None:
            gradient.memory.div_(scale.to(gradient.memory.device))
        if is_plain(gradient.tensor):
            gradient.tensor.grad = gradient.memory

    # --- State ---

    def _save(self) -> bytes:
        file = io.BytesIO()
        tensors = {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}
        torch.save({"model": {name: tensor.detach() for name, tensor in tensors.items()},
                    "optimizer": self._inner.state_dict(),
                    "stateful": [one.state_dict() for one in self._stateful]}, file)
        return file.getvalue()

    def _load(self, state: bytes) -> None:
        loaded = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        tensors = {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(loaded["model"][name])
        self.load_state_dict(loaded["optimizer"])
        for one, its_state in zip(self._stateful, loaded["stateful"], strict=True):
            one.load_state_dict(its_state)

    def _share(self) -> None:
        self.param_groups, self.state = self._inner.param_groups, self._inner.state

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch. To be called on all workers, or on the chief before distribute()."""
        self._inner.load_state_dict(state_dict)
        self._share()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "_ring"):
            raise Refused("the parameters of a job are fixed: give all parameter groups to the optimizer before distribute()")
        super().add_param_group(param_group)


def _gradients(model: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int) -> list[_Gradient]:
    """The optimizer's parameters in the order of the model: backward computes the gradients of the last ones first."""
    trained = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    found: list[_Gradient] = []
    for name, tensor in model.named_parameters():
        if id(tensor) in trained:
            check_type(name, tensor)
            trained.remove(id(tensor))
            found.append(_Gradient(name, tensor, first + len(found)))
    if trained:
        raise InvalidArgument(f"the optimizer has {len(trained)} parameters that the model does not have")
    return found


def _variable(name: str, shape: Any) -> _native.Variable:
    variable = _native.Variable()
    variable.name = name
    variable.shape = list(shape)
    return variable
