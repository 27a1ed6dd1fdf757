"""The number of this worker, and where the servers and the other workers are.

TF_CONFIG is parsed by the same rules as in cairn-ps and cairn-worker: `common/net/cluster/cluster_resolver.cc` is the
reference: "cluster" or Kubeflow's "sparseCluster"; each job a list of addresses or an object from index to address;
"master" is another name of "chief"; the index may be a string.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from cairn._options import addresses, whole
from cairn.errors import InvalidArgument

_JOBS = {"ps": "ps", "worker": "worker", "chief": "chief", "master": "chief", "evaluator": "evaluator"}


class Cluster(NamedTuple):
    """A cluster, and the place of this task in it."""

    servers: list[str]  # addresses by index; may be empty: all-reduce needs none
    trainers: list[str]  # the tasks that compute gradients, the chief first: ["chief/0", "worker/0"]
    worker: int  # the position of this task among them
    peers: list[str]  # the addresses of the trainers


class Assignment(NamedTuple):
    """The number of a worker, and the addresses of the tasks."""

    servers: list[str]  # may be empty if there are peers
    worker: int
    workers: int
    peers: list[str]  # the addresses of the workers; empty: unknown


def assignment(servers: str | Sequence[str] | None, worker: int | None, workers: int | None,
               peers: str | Sequence[str] | None, elastic: bool) -> Assignment:
    """The arguments of init(), with what they omit taken from the environment. Raises InvalidArgument, naming the
    argument or the variable."""
    if servers is None and peers is None and "TF_CONFIG" in os.environ:
        if worker is not None or workers is not None:
            raise InvalidArgument("init() takes worker and workers from TF_CONFIG: omit them, or give servers too")
        described = from_tf_config(os.environ["TF_CONFIG"])
        return Assignment(described.servers, described.worker, len(described.trainers), described.peers)
    servers_name, peers_name = "servers", "peers"
    if servers is None:
        servers, servers_name = os.environ.get("CAIRN_SERVERS") or [], "CAIRN_SERVERS"
        if peers is None:
            peers, peers_name = os.environ.get("CAIRN_WORKERS") or [], "CAIRN_WORKERS"
    others = addresses(peers, peers_name) if peers else []
    if not servers and not others:
        raise InvalidArgument("init() needs servers, or TF_CONFIG or CAIRN_SERVERS in the environment; or peers or "
                              "CAIRN_WORKERS for mode='allreduce'")
    number = _number(worker, "worker", "RANK", 0)
    count = len(others) if others and workers is None else _number(workers, "workers", "WORLD_SIZE", 1)
    if count < 1 or (number >= count and not elastic):
        raise InvalidArgument(f"worker is {number} of {count}, must be in [0, {count})")
    if others and len(others) != count and not elastic:
        raise InvalidArgument(f"{peers_name}: {len(others)} addresses for {count} workers")
    return Assignment(addresses(servers, servers_name) if servers else [], number, count, others)


def _number(value: int | None, name: str, variable: str, default: int) -> int:
    if value is not None:
        return whole(value, name, 0)
    text = os.environ.get(variable, str(default))
    if not text.isdecimal():
        raise InvalidArgument(f"{name}: the environment variable {variable} is {text!r}, must be a number")
    return int(text)


def from_tf_config(text: str) -> Cluster:
    """Returns the Cluster in the value of TF_CONFIG. Raises InvalidArgument, naming the invalid entry."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"TF_CONFIG is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InvalidArgument(f"TF_CONFIG must be an object, found {_kind(config)}")
    tasks = _tasks(_cluster_of(config))
    job, index = _task_of(config)
    if job not in ("chief", "worker"):
        raise InvalidArgument(f"TF_CONFIG: this task is {job}/{index}, which computes no gradients: only a chief or a worker does")
    if index not in tasks[job]:
        known = ", ".join(map(str, tasks[job])) or "none"
        raise InvalidArgument(f"TF_CONFIG: this task is {job}/{index}, but the cluster's indices of {job} are: {known}")
    trainers = [f"{name}/{i}" for name in ("chief", "worker") for i in tasks[name]]
    peers = [address for name in ("chief", "worker") for address in tasks[name].values()]
    return Cluster(_servers(tasks["ps"]), trainers, trainers.index(f"{job}/{index}"), peers)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _cluster_of(config: dict[str, Any]) -> dict[str, Any]:
    cluster, sparse = config.get("cluster"), config.get("sparseCluster")
    if cluster is not None and sparse is not None:
        raise InvalidArgument('TF_CONFIG has both "cluster" and "sparseCluster"')
    cluster = cluster if cluster is not None else sparse
    if not isinstance(cluster, dict):
        raise InvalidArgument(f'TF_CONFIG: "cluster" must be an object, found {_kind(cluster)}')
    return cluster


def _task_of(config: dict[str, Any]) -> tuple[str, int]:
    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") is None or task.get("index") is None:
        raise InvalidArgument('TF_CONFIG does not say which task this is: "task" must be like {"type": "worker", "index": 0}')
    job = _JOBS.get(task["type"]) if isinstance(task["type"], str) else None
    if job is None:
        raise InvalidArgument(f"TF_CONFIG: task.type is {json.dumps(task['type'])}, must be worker, chief or master")
    return job, _index(task["index"], "task.index")


def _index(value: object, where: str) -> int:
    try:
        index = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        index = -1
    if index < 0:
        raise InvalidArgument(f"TF_CONFIG: {where} is {json.dumps(value)}, must be 0 or more")
    return index


def _tasks(cluster: dict[str, Any]) -> dict[str, dict[int, str]]:
    """{job: {index: address}}, indices ascending."""
    if cluster.get("chief") and cluster.get("master"):
        raise InvalidArgument('TF_CONFIG: the cluster has both "chief" and "master", which are two names of one job')
    tasks: dict[str, dict[int, str]] = {job: {} for job in _JOBS.values()}
    owners: dict[str, str] = {}
    for name, addresses in cluster.items():
        job = _JOBS.get(name)
        if job is None or addresses is None:  # other jobs are ignored; null is how Go writes an empty list
            continue
        if not isinstance(addresses, (list, dict)):
            raise InvalidArgument(f'TF_CONFIG: cluster.{name} must be a list of "host:port" or an object from index to '
                             f'"host:port", found {_kind(addresses)}')
        items: list[tuple[Any, Any]] = [*(enumerate(addresses) if isinstance(addresses, list) else addresses.items())]
        for key, address in items:
            index = _index(key, f"an index of cluster.{name}")
            if not isinstance(address, str) or ":" not in address:
                raise InvalidArgument(f'TF_CONFIG: {name}/{index}: the address must be "host:port", found {json.dumps(address)}')
            if address in owners:
                raise InvalidArgument(f"TF_CONFIG: {name}/{index}: {address} is already the address of {owners[address]}")
            owners[address] = f"{name}/{index}"
            tasks[job][index] = address
        if job == "chief" and len(tasks[job]) > 1:
            raise InvalidArgument("TF_CONFIG: the cluster has more than one chief")
    return {job: dict(sorted(addresses.items())) for job, addresses in tasks.items()}


def _servers(addresses: dict[int, str]) -> list[str]:
    for expected, index in enumerate(addresses):
        if index != expected:
            raise InvalidArgument(f"TF_CONFIG: ps/{expected} is missing, but ps/{index} is there: servers are numbered from 0 without gaps")
    return list(addresses.values())
