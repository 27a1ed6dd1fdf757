"""Trains models of other libraries with Cairn's parameter servers.

    job = cairn.init("ps0:2222,ps1:2222", worker=0, workers=2)
    optimizer = cairn.torch.distribute(torch.optim.AdamW(model.parameters(), lr=1e-3), model, job)

`cairn.torch` is for PyTorch, `cairn.keras`, `cairn.lightning` and `cairn.jax` for the frameworks of these names, and
Job.start() and Job.push() for NumPy arrays. `import cairn` imports no framework. The package writes nothing to the
terminal: what it reports goes to the logger "cairn".
"""

import logging as _logging

from cairn.environment import hide_ranks
from cairn.errors import (ConnectionLost, DataDamaged, Error, InvalidArgument, JobEnded, MembershipLost, NoMemory, Refused,
                          StepTimeout)
from cairn.job import Job, init
from cairn.local import local, servers
from cairn.steps import Result
from cairn.tables import Table
from cairn.variables import Variables, connect

__all__ = ["ConnectionLost", "DataDamaged", "Error", "InvalidArgument", "Job", "JobEnded", "MembershipLost", "NoMemory",
           "Refused", "Result", "StepTimeout", "Table", "Variables", "connect", "hide_ranks", "init", "local", "servers"]

_logging.getLogger("cairn").addHandler(_logging.NullHandler())
