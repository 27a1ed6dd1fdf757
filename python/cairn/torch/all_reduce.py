"""An optimizer of torch that runs in every worker, on the mean of their gradients: distribute(mode="allreduce")."""

from __future__ import annotations

import enum
import io
import itertools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from cairn import _native
from cairn.errors import InvalidArgument, MembershipLost, Refused, code_number
from cairn.job import Job
from cairn.steps import Result
from cairn.torch.cuda import PinnedMemory
from cairn.torch.gradients import Gradient, SendingOptimizer, gpu_of
from cairn.torch.tensors import check_type, floating_buffers, weakly

_log = logging.getLogger("cairn")

_USED = "cairn.used"  # the variable that says which parameters have a gradient, on some worker with examples


class _Update(enum.Enum):
    """How far the update of the last step is."""

    WAITS = 0  # the mean is here
    BEGUN = 1  # values have changed
    MADE = 2


class _Mean(NamedTuple):
    values: list[torch.Tensor]  # of each variable
    memory: PinnedMemory | None  # None: no tensor is on a GPU

    @property
    def pinned(self) -> bool:
        return self.memory is not None and self.memory.pinned


class AllReduceOptimizer(SendingOptimizer):
    """Made by distribute(mode="allreduce"). Has the parameter groups and the state of the optimizer that it was made
    of, whose step() each worker runs on the mean gradient: schedulers, state_dict() and hooks act as in torch.

    After step(), the `grad` of a parameter is the mean over all workers. A parameter that no worker used has none, and
    is left as it is.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, job: Job, *, max_grad_norm: float | None,
                 buffers: str, eager: bool, stateful: Sequence[Any]) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidArgument("LBFGS evaluates its closure several times in a step, which all-reduce does not support")
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise InvalidArgument("SparseAdam takes sparse gradients only, but the means of all-reduce are dense: use Adam")
        super().__init__(optimizer, job, eager)
        self._inner = optimizer
        self._share()
        self._model = model
        self._stateful = list(stateful)
        self._max_grad_norm = max_grad_norm
        self._averaged = [Gradient(name, tensor, 1 + i) for i, (name, tensor) in enumerate(floating_buffers(model, buffers))]
        self._trained = _gradients(model, optimizer, first=1 + len(self._averaged))
        gpu = gpu_of(self._trained)
        self._unsettled = False  # a step was sent, and its end was not waited for
        self._update = _Update.MADE
        self._means: dict[int, _Mean] = {}  # [address of the memory]
        sent = [*self._averaged, *self._trained]
        variables = [_variable(_USED, [len(self._trained)]), *[_variable(g.name, g.tensor.shape) for g in sent]]
        self._sizes = [variable.num_elements for variable in variables]
        self._shapes = [variable.shape for variable in variables]
        kind = type(optimizer)
        groups = ", ".join(str(len(group["params"])) for group in self.param_groups)
        described = (f"{kind.__module__}.{kind.__qualname__} with groups of {groups} parameters, buffers={buffers}, "
                     f"max_grad_norm={max_grad_norm}")
        self._ring = job.open_all_reduce(variables, described, weakly(self._save), weakly(self._load),
                                              self._join_others)
        self._used, *memory = (from_dlpack(self._ring.gradients(i)).view(shape) for i, shape in enumerate(self._shapes))
        for gradient, its_memory in zip(sent, memory, strict=True):
            gradient.memory = its_memory
        self._watch(gpu)

    # --- The loop ---

    def _finish(self, examples: int) -> None:
        if hasattr(self, "found_inf"):
            self._send_late("a GradScaler scales the gradients")
        self._check_sent()
        if self._begun is not None and self._begun != examples:
            self._cancel()
        self._settle()
        if self._begun is None:
            self._begin(examples)
        self._used.copy_(torch.tensor([float(g.tensor.grad is not None) for g in self._trained]))
        self._copy_rest()
        try:
            self._await_mean(examples)
        except BaseException:  # the gradients have been sent, and may still be: the next ones are others
            self.zero_grad()
            raise
        finally:
            self._count_backwards()
        self._examples = examples or self._examples

    def _begin(self, examples: int, done: bool = False) -> None:
        self._ring.begin_step(examples, done)
        self._begun = examples

    def _await_mean(self, examples: int, done: bool = False) -> bool:
        """Ends the step, and repeats it if a worker was lost. Returns whether all workers are done."""
        if self._copies is not None:
            self._copies.finish()
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
            self._update = _Update.WAITS
            self._apply()
        return step.done

    def _end_step(self, outcome: str) -> None:
        self._unsettled = False
        self._forget()
        self.result = Result(outcome, self._ring.version, 0)

    def _apply(self) -> None:
        """Makes the update with the mean. If it is interrupted before it has changed a value, it can be made again."""
        mean = self._mean()
        used, *values = mean.values
        with torch.no_grad():
            for buffer, value in zip(self._averaged, values, strict=False):
                buffer.tensor.copy_(value, non_blocking=buffer.on_gpu and mean.pinned)
        tensors = []
        for gradient, is_used in zip(self._trained, used.tolist(), strict=True):
            value = values[gradient.index - 1]
            tensor = gradient.tensor
            if not is_used:
                tensor.grad = None
                continue
            tensor.grad = value if gradient.in_place else value.to(tensor, non_blocking=gradient.on_gpu and mean.pinned)
            tensors.append(tensor)
        if self._copies is not None:
            self._copies.values_installed()
        if self._max_grad_norm is not None:
            self._ring.await_sent()
        self._update = _Update.BEGUN
        if self._max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(tensors, self._max_grad_norm)
        self._inner.step()
        self._update = _Update.MADE
        self._ring.await_sent()  # the program may change the means from here on

    def _mean(self) -> _Mean:
        """The mean of each variable."""
        flat = from_dlpack(self._ring.mean())
        if flat.data_ptr() not in self._means:
            ends = itertools.accumulate(self._sizes)
            views = [flat[end - size:end].view(shape) for end, size, shape in zip(ends, self._sizes, self._shapes, strict=True)]
            self._means[flat.data_ptr()] = _Mean(views, self._pin(flat))
        return self._means[flat.data_ptr()]

    def _pin(self, flat: torch.Tensor) -> PinnedMemory | None:
        if self._copies is None:
            return None
        if flat.data_ptr() == self._used.data_ptr():  # one worker: its gradients are the mean
            return self._copies.memory
        return self._copies.pin([flat])

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
        if self._update is _Update.BEGUN:
            raise Refused("the update of an earlier step was interrupted, and this worker's values may differ from those of "
                          "the others: start it again, and it takes over theirs")
        if not self._unsettled and self._update is _Update.MADE:
            return
        gradients = [g.tensor.grad for g in self._trained]
        if self._unsettled:
            self._await_mean(self._begun or 0)
        else:
            self._apply()
        for gradient, value in zip(self._trained, gradients, strict=True):
            gradient.tensor.grad = value
        _log.warning("an interrupted step has ended; the gradients of this one belong to the values before it")

    def _recover(self, failure: MembershipLost) -> bool:
        """Connects all workers again. Returns whether this one has taken over the state of another."""
        self._means.clear()
        try:
            return self._ring.recover(code_number(failure), str(failure))
        except BaseException:  # the next step connects them; the gradient of this one is lost
            self._unsettled = False
            self._forget()
            raise

    # --- Gradients ---

    def _begin_early(self) -> None:
        self._begin(self._examples)

    def _announce(self, index: int) -> None:
        self._ring.announce(index)

    def _take_back(self) -> None:
        _log.info("a gradient that had been sent is taken back: all workers repeat the step")
        self._means.clear()
        self._ring.cancel_step()

    def _holds_back(self) -> bool:
        return self._unsettled or self._update is not _Update.MADE

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


def _gradients(model: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int) -> list[Gradient]:
    """The optimizer's parameters in the order of the model: backward computes the gradients of the last ones first."""
    trained = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    found: list[Gradient] = []
    for name, tensor in model.named_parameters():
        if id(tensor) in trained:
            check_type(name, tensor)
            trained.remove(id(tensor))
            found.append(Gradient(name, tensor, first + len(found)))
    if trained:
        raise InvalidArgument(f"the optimizer has {len(trained)} parameters that the model does not have")
    return found


def _variable(name: str, shape: Any) -> _native.Variable:
    variable = _native.Variable()
    variable.name = name
    variable.shape = list(shape)
    return variable
