"""The steps of a worker on its servers: repeated if they were lost, and counted once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from cairn import _native
from cairn.batches import Batches, Item
from cairn.errors import MembershipLost, Refused, code_number
from cairn.tables import Exchange

_log = logging.getLogger("cairn")

_ACCEPTED = _native.Outcome.ACCEPTED  # compared by identity: an enum's hash and name take a microsecond


class Result(NamedTuple):
    """The servers' decision about a step."""

    # "accepted", "stale" (computed from values that are too old, or from a batch that has gone to another worker),
    # "finished" (the job is over), or "rejoined": this worker was lost and has joined again, and the gradient is in the
    # update unless the round closed without it.
    outcome: str
    version: int  # updates in the values after the step
    staleness: int  # updates between the values that were used and this update


class Steps:
    """The membership of a worker in a job with servers, and its steps. For integrations such as cairn.torch."""

    def __init__(self, session: _native.Session, description: _native.Job, worker: int, batches: Batches | None) -> None:
        self.session = session
        self.exchange = Exchange(session, description.tables)
        self.exchange.on_recovery = self._on_recovery
        # Callbacks of an integration: after values have been fetched, after this worker has joined again while it read
        # rows, and for a step without examples.
        self.on_values: Callable[[], None] | None = None
        self.on_recovery: Callable[[], None] | None = None
        self.on_empty_step: Callable[[], None] | None = None
        self._worker = worker
        self._batches = batches
        self._counts_versions = description.mode == _native.Mode.SYNC
        self._counted_at_values = 0  # _counted() when the program got its values
        self._lost: str | None = None  # the outcome of the next step, if those values are gone
        self._unsettled = False  # a step was sent, and its end was not waited for
        self._got_values()

    # --- Batches ---

    def work_items(self) -> list[Item]:
        """The items of job.batches() that are assigned to this worker; the next step is made from the first one."""
        return [Item(item.epoch, item.first, item.count) for item in self.session.work_items]

    @property
    def batch_examples(self) -> int | None:
        """The number of examples in the current batch of job.batches(). None without batches."""
        if self._batches is None:
            return None
        items = self.session.work_items
        return items[0].count if items else 0

    def await_work(self) -> None:
        """Waits until there is an item in work_items() or the job has finished."""
        if not self.session.finished and not self.session.work_items:
            self.recovering(self.session.await_work)
            self.values_fetched()

    def without_examples(self) -> None:
        """Takes part in a round for which job.batches() has no examples."""
        if self.on_empty_step is not None:
            self.on_empty_step()
            return
        self.exchange.push([])
        self.make(lambda: self.begin(0))
        if self.on_values is not None:
            self.on_values()

    # --- Steps ---

    def make(self, begin: Callable[[], None]) -> Result:
        """Makes one step. `begin` calls begin() of this object; it is called again if the step was lost with a server
        or with this worker's membership and must be repeated, as it was then."""
        begin()
        self.exchange.send()
        return self.finish(begin)

    def begin(self, examples: int) -> None:
        """session.begin_step(), with the current batch if there are batches."""
        if self._batches is not None and not self.session.finished:
            self._batches.check_unused()
        self.session.begin_step(examples)

    def finish(self, begin: Callable[[], None]) -> Result:
        """The end of make(), after `begin` was called and exchange.send()."""
        items = self._current_item()
        self._unsettled = True
        while True:
            try:
                result = self.session.finish_step()
                assert result is not None
                outcome = "accepted" if result.outcome is _ACCEPTED else result.outcome.name.lower()
                staleness = result.staleness
            except MembershipLost as failure:
                self.recover(failure)
                if not self._values_are_gone() and self._current_item() == items:
                    begin()
                    self.exchange.send()
                    continue
                outcome, staleness = self._outcome_of_lost_step(), 0
            self._end_step()
            return Result(outcome, self.session.version, staleness)

    def _current_item(self) -> list[Item]:
        return [] if self._batches is None else self.work_items()[:1]

    @property
    def lost(self) -> bool:
        """Whether this worker has joined again while it read rows, and has other values than the program's gradient
        belongs to: leave_out() takes the place of the step."""
        return self._lost is not None

    def leave_out(self) -> Result:
        """Gives up the current batch, and pushes nothing. The batch comes again, or goes to another worker."""
        assert self._lost is not None
        self.exchange.push([])
        self.exchange.forget()
        result = Result(self._lost, self.session.version, 0)
        self._end_step()
        return result

    def _end_step(self) -> None:
        self._unsettled = False
        self._got_values()
        if self._batches is not None:
            self._batches.use()

    # --- Values, and what has become of those that the program has ---

    def pull(self) -> None:
        """Fetches the current values."""
        self.settle_interrupted()
        self.recovering(self.session.pull)
        self.values_fetched()

    def values_fetched(self) -> None:
        """The session has other values than after the last step."""
        self._got_values()
        if self.on_values is not None:
            self.on_values()

    def _got_values(self) -> None:
        self._lost, self._counted_at_values = None, self._counted()

    def _counted(self) -> int:
        """A number by which a step that was counted, or taken back, is known after a recovery."""
        return self.session.version if self._counts_versions else self.session.position

    def _values_are_gone(self) -> bool:
        return self.session.finished or self._counted() != self._counted_at_values

    def _on_recovery(self) -> None:
        """This worker has joined again while it read rows."""
        if self._values_are_gone() or (self._batches is not None and self._batches.gone()):
            self._lost = self._outcome_of_lost_step()
        if self.on_recovery is not None:
            self.on_recovery()

    def _outcome_of_lost_step(self) -> str:
        if self.session.finished:
            return "finished"
        if self._counted() > self._counted_at_values:
            return "rejoined"
        if self._counted() < self._counted_at_values:
            _log.warning("the servers lost their values and went back to the checkpoint of version %d", self.session.version)
        return "stale"

    # --- Recovery and interruption ---

    def recover(self, failure: MembershipLost) -> None:
        self.session.recover(code_number(failure), str(failure))

    def recovering(self, call: Callable[[], None]) -> None:
        """Makes a call that may be repeated, and recovers if a server or this worker's membership is lost."""
        while True:
            try:
                return call()
            except MembershipLost as failure:
                self.recover(failure)

    def settle_interrupted(self) -> None:
        """Waits for the end of a step that was sent and then interrupted, for example by Ctrl-C."""
        if not self._unsettled:
            return
        self.settle()
        self._end_step()
        _log.warning("an interrupted step has ended; the gradients of this one belong to the values before it")

    def settle(self) -> None:
        """Cancels a step that was begun, and waits for the end of one that was sent and interrupted."""
        with contextlib.suppress(Refused):  # there is none, or it was sent
            self.session.cancel_step()
            return
        try:
            with contextlib.suppress(Refused):  # there is none
                self.session.finish_step()
        except MembershipLost as failure:
            self.recover(failure)

    # --- The membership ---

    @property
    def version(self) -> int:
        return self.session.version

    @property
    def position(self) -> int:
        return self.session.position

    @property
    def finished(self) -> bool:
        return self.session.finished

    @property
    def made_in_this_process(self) -> bool:
        return self.session.made_in_this_process

    def end(self) -> None:
        """Leaves with all work done."""
        self._forget_program()
        self.settle()
        self.recovering(self.session.end)

    def leave(self, failure: str | None) -> None:
        """Leaves early; with `failure`, the job ends for all workers. Best effort."""
        self._forget_program()
        if failure is None:
            self.session.leave(_native.LeaveReason.STOPPED)
        else:
            self.session.leave(_native.LeaveReason.FAILED, f"worker/{self._worker}: {failure}")

    def _forget_program(self) -> None:
        """Nothing keeps a job that the program has forgotten."""
        self._batches = self.on_values = self.on_recovery = self.on_empty_step = None


class Ring:
    """The membership of a worker in a job without servers."""

    def __init__(self, native: _native.AllReduce, join_others: Callable[[], None]) -> None:
        self.native = native
        self._join_others: Callable[[], None] | None = join_others

    @property
    def version(self) -> int:
        return self.native.version

    position = version
    finished = False

    @property
    def made_in_this_process(self) -> bool:
        return self.native.made_in_this_process

    def end(self) -> None:
        """Takes part in the steps of the other workers until no worker has more, and leaves."""
        if self._join_others is not None:
            self._join_others()
        self.native.end()
        self._join_others = None

    def leave(self, failure: str | None) -> None:
        """Leaves early; with `failure`, the job ends for all workers. Best effort."""
        self._join_others = None
        if failure is None:
            self.native.leave(_native.LeaveReason.STOPPED)
        else:
            self.native.leave(_native.LeaveReason.FAILED, failure)
