"""Gradients on their way to the servers or to other workers: what the optimizers of distribute() have in common."""

from __future__ import annotations

import functools
import itertools
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim import optimizer as _torch_optimizer

from cairn._options import EXAMPLES_LIMIT, whole
from cairn.errors import InvalidArgument, Refused
from cairn.job import CLOSED, Job
from cairn.steps import Result
from cairn.torch.cuda import DeviceCopies
from cairn.torch.tensors import is_on_gpu, is_plain, weakly

_log = logging.getLogger("cairn")


class Gradient:
    """A parameter, and the memory in which its gradient travels. Or a buffer, which is sent with the gradients."""

    def __init__(self, name: str, tensor: torch.Tensor, index: int) -> None:
        self.name = name
        self.tensor = tensor
        self.index = index  # of the variable
        self.memory = tensor  # set when the job has been joined
        # A parameter that uses the memory that travels as its own, without a copy.
        self.in_place = isinstance(tensor, torch.nn.Parameter) and is_plain(tensor)
        self.on_gpu = is_on_gpu(tensor)
        self.usual_backwards = 0  # gradients that a step adds up, as seen in the last one
        self.backwards = 0  # in this step
        self.sent: tuple[torch.Tensor, int] | None = None  # tensor.grad and its _version when it was sent in this step


class SendingOptimizer(torch.optim.Optimizer):
    """An optimizer that sends each gradient while backward goes on: when backward() has added it up as often as in the
    step before. Gradients of parameters on a GPU are copied on a stream of their own.

    A derived class begins steps, announces variables, and ends steps.
    """

    # torch.amp.GradScaler then leaves it to step() to divide by the scale and to leave out a step with infinities.
    _step_supports_amp_scaling = True

    def __init__(self, optimizer: torch.optim.Optimizer, job: Job, eager: bool) -> None:
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.job = job
        self._joined = [list(group["params"]) for group in self.param_groups]
        self.result: Result | None = None  # of the last step
        self.examples: int | None = None  # of a step() that is called without them, as the loops of other libraries do
        self._eager = eager
        self._trained: Sequence[Gradient] = ()
        self._averaged: Sequence[Gradient] = ()  # the buffers
        self._by_tensor: dict[int, Gradient] = {}
        self._copies: DeviceCopies | None = None  # None: the gradients are in the memory of the host
        self._examples = 1  # of the last step: the next one probably has as many
        self._begun: Any = None  # what the step in progress was begun with; None: there is none

    # The wrapper that torch puts around step(), for hooks, and to name it for a profiler. It takes much of the time of
    # a small step, which is saved where there are neither hooks nor a profiler.
    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = torch.optim.Optimizer.profile_hook_step(func)

        @functools.wraps(func)
        def step(self: SendingOptimizer, *args: Any, **options: Any) -> Any:
            return (wrapped if _is_observed(self) else func)(self, *args, **options)
        return step

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none or _is_observed(self):
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for tensor in group["params"]:
                tensor.grad = None

    # --- Of the derived class ---

    def _begin_early(self) -> None:
        """Begins a step, in backward, with what is expected of its end."""
        raise NotImplementedError

    def _announce(self, index: int) -> None:
        """The gradient of a variable is in its memory, and stays as it is."""
        raise NotImplementedError

    def _changed_gradient(self) -> int | None:
        """A variable whose gradient has been changed after it was announced, by a write that PyTorch does not count."""
        return None

    def _take_back(self) -> None:
        """Cancels the step in progress."""
        raise NotImplementedError

    def _holds_back(self) -> bool:
        """Whether gradients wait for step()."""
        raise NotImplementedError

    def _batch_examples(self) -> int | None:
        """The number of examples in the current batch of job.batches(). None: there are none, or no batches."""
        return None

    def _finish(self, examples: int) -> None:
        """Ends a step."""
        raise NotImplementedError

    # --- The loop ---

    def step(self, closure: Callable[[], Any] | None = None, examples: int | None = None) -> Any:
        """Ends a step: waits for the update, after which the new values are in place.

        examples: the number of examples of this worker's gradient, which is their mean: its weight in the update. By
        default it is the attribute `examples`, if the program has set it, or the number in the current batch of
        job.batches(); without either, all workers' gradients have the same weight. With 0 the gradient does not count.
        Returns what `closure` returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if examples is None:
            examples = self.examples if self.examples is not None else self._batch_examples() or 1
        if isinstance(examples, torch.Tensor) and examples.numel() == 1:
            examples = examples.reshape(())
        weight = whole(examples, "examples", 0, EXAMPLES_LIMIT)
        if self.job.closed:
            raise Refused(CLOSED)
        self._check_groups()
        self._finish(0 if self._found_infinity() else weight)
        return loss

    def _found_infinity(self) -> bool:
        """Whether a GradScaler has found an infinity: then the gradients do not count."""
        found = getattr(self, "found_inf", None)
        return found is not None and bool(found)

    def _check_groups(self) -> None:
        """Raises Refused if the program has changed which parameters are in param_groups."""
        for number, (group, joined) in enumerate(itertools.zip_longest(self.param_groups, self._joined, fillvalue=None)):
            now = [] if group is None else group["params"]
            if joined is None or len(now) != len(joined) or not all(map(operator.is_, now, joined)):
                raise Refused(f"the program has changed the parameters of param_groups[{number}], but those of a job are "
                              "fixed: to leave one as it is, set its requires_grad to False")

    def __getstate__(self) -> dict[str, Any]:
        raise Refused("the optimizer belongs to a live job, and cannot be copied or pickled: copy its state_dict(), or call "
                      "distribute() in each process")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "job"):
            raise Refused("the parameters of a job are fixed: give all parameter groups to the optimizer before distribute()")
        super().add_param_group(param_group)

    # --- Gradients ---

    def _watch(self, gpu: torch.device | None, others: Iterable[torch.Tensor] = ()) -> None:
        """The job has been joined: gradients are sent from now on. others: more memory from which tensors are copied to
        the GPU."""
        self._by_tensor = {id(gradient.tensor): gradient for gradient in self._trained}
        if gpu is not None:
            memory = [*(gradient.memory for gradient in (*self._trained, *self._averaged)), *others]
            self._copies = DeviceCopies(gpu, memory, weakly(self._announce))
        for gradient in self._trained:
            frozen = not gradient.tensor.requires_grad
            gradient.tensor.requires_grad_()  # torch registers hooks for no others; it may be unfrozen later
            hook = weakly(self._on_gradient)
            gradient.tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            gradient.tensor.requires_grad_(not frozen)

    def _on_gradient(self, tensor: torch.Tensor) -> None:
        """A backward() has added to the gradient of `tensor`."""
        if self.job.closed:
            return
        gradient = self._by_tensor[id(tensor)]
        gradient.backwards += 1
        if gradient.sent is not None:  # one more than usual
            self._cancel()
        if not self._eager or gradient.backwards != gradient.usual_backwards or self._holds_back():
            return
        if self._begun is None:
            self._check_groups()
            self._begin_early()
        if not self._copy(gradient, tensor.grad, None):
            self._announce(gradient.index)
        assert tensor.grad is not None
        gradient.sent = (tensor.grad, tensor.grad._version)

    def _copy(self, gradient: Gradient, value: torch.Tensor | None, scale: torch.Tensor | None) -> bool:
        """Copies `value` into the memory that travels, which is a parameter's own gradient from then on. Returns
        whether the copy has only begun: then it is announced when it is complete."""
        if value is None:
            gradient.memory.zero_()
            return False
        if value.is_sparse:
            value = value.to_dense()
        if self._copies is not None and gradient.on_gpu:
            if scale is not None:
                value = value.float().div(scale.to(value.device))
            self._copies.send(gradient.index, value, gradient.memory)
            return True
        if value is not gradient.memory:
            gradient.memory.copy_(value)
        if scale is not None:
            gradient.memory.div_(scale.to(gradient.memory.device))
        if gradient.in_place:
            gradient.tensor.grad = gradient.memory
        return False

    def _copy_rest(self) -> None:
        """Copies the gradients that have not been sent, and the buffers. The end of the step sends them."""
        scale = getattr(self, "grad_scale", None)
        for gradient in self._trained:
            if gradient.sent is None:
                self._copy(gradient, gradient.tensor.grad, scale)
        for buffer in self._averaged:
            self._copy(buffer, buffer.tensor, None)

    def _check_sent(self) -> None:
        """Raises Refused if a gradient was changed after it had been sent."""
        written = self._changed_gradient() if self._begun is not None else None
        for gradient in self._trained:
            if gradient.sent is not None and (gradient.index == written or gradient.tensor.grad is not gradient.sent[0]
                                              or gradient.sent[0]._version != gradient.sent[1]):
                self._cancel()
                raise Refused(f"the gradient of {gradient.name!r} was changed after it had been sent: limit norms by "
                              "distribute(max_grad_norm=...), or send by step(): distribute(eager=False)")

    def _send_late(self, reason: str) -> None:
        """From now on, step() sends all gradients."""
        if self._eager:
            self._eager = False
            _log.info("%s: step() sends the gradients from now on", reason)
        self._cancel()

    def _cancel(self) -> None:
        """Takes back what this step has sent: step() sends it again."""
        if self._begun is None:
            return
        if self._copies is not None:
            self._copies.cancel()
        try:
            self._take_back()
        finally:
            self._forget()

    def _forget(self) -> None:
        """The step in progress has been cancelled, or is lost."""
        self._begun = None
        for gradient in self._trained:
            gradient.sent = None

    def _count_backwards(self) -> None:
        """At the end of a step: the next one probably adds up as many gradients."""
        for gradient in self._trained:
            gradient.sent = None
            gradient.usual_backwards, gradient.backwards = gradient.backwards, 0


def _is_observed(optimizer: torch.optim.Optimizer) -> bool:
    """Whether there are hooks of step(), of this optimizer or of all, or a profiler runs. True if that is unknown: some
    of it has no public name."""
    of_all = (getattr(_torch_optimizer, f"_global_optimizer_{when}_hooks", True) for when in ("pre", "post"))
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or any(of_all)
                or getattr(torch.autograd, "_profiler_enabled", lambda: True)())


def gpu_of(gradients: Iterable[Gradient]) -> torch.device | None:
    """The GPU that has these parameters, or some of them. None: they are in the memory of the host."""
    devices = {gradient.tensor.device for gradient in gradients if gradient.on_gpu}
    if len(devices) > 1:
        raise InvalidArgument(f"the model is on {', '.join(sorted(map(str, devices)))}: start a worker for each GPU")
    return devices.pop() if devices else None
