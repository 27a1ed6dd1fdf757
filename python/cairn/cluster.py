"""Parses the cluster of a task from TF_CONFIG, by the same rules as cairn-ps and cairn-worker.

`common/net/cluster/cluster_resolver.cc` is the reference: "cluster" or Kubeflow's "sparseCluster"; each job a list of
addresses or an object from index to address; "master" is another name of "chief"; the index may be a string.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_JOBS = {"ps": "ps", "worker": "worker", "chief": "chief", "master": "chief", "evaluator": "evaluator"}


class Cluster(NamedTuple):
    """A cluster, and the place of this task in it."""

    servers: list[str]  # addresses by index
    trainers: list[str]  # the tasks that compute gradients, the chief first: ["chief/0", "worker/0"]
    worker: int  # the position of this task among them
    peers: list[str]  # the addresses of the trainers


def from_tf_config(text: str, *, needs_servers: bool = True) -> Cluster:
    """Returns the Cluster in the value of TF_CONFIG. Raises ValueError, naming the invalid entry."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"TF_CONFIG must be an object, found {_kind(config)}")
    tasks = _tasks(_cluster_of(config))
    job, index = _task_of(config)
    if job not in ("chief", "worker"):
        raise ValueError(f"TF_CONFIG: this task is {job}/{index}, which computes no gradients: only a chief or a worker does")
    if index not in tasks[job]:
        known = ", ".join(map(str, tasks[job])) or "none"
        raise ValueError(f"TF_CONFIG: this task is {job}/{index}, but the cluster's indices of {job} are: {known}")
    trainers = [f"{name}/{i}" for name in ("chief", "worker") for i in tasks[name]]
    peers = [address for name in ("chief", "worker") for address in tasks[name].values()]
    servers = _servers(tasks["ps"]) if needs_servers or tasks["ps"] else []
    return Cluster(servers, trainers, trainers.index(f"{job}/{index}"), peers)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _cluster_of(config: dict[str, Any]) -> dict[str, Any]:
    cluster, sparse = config.get("cluster"), config.get("sparseCluster")
    if cluster is not None and sparse is not None:
        raise ValueError('TF_CONFIG has both "cluster" and "sparseCluster"')
    cluster = cluster if cluster is not None else sparse
    if not isinstance(cluster, dict):
        raise ValueError(f'TF_CONFIG: "cluster" must be an object, found {_kind(cluster)}')
    return cluster


def _task_of(config: dict[str, Any]) -> tuple[str, int]:
    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") is None or task.get("index") is None:
        raise ValueError('TF_CONFIG does not say which task this is: "task" must be like {"type": "worker", "index": 0}')
    job = _JOBS.get(task["type"]) if isinstance(task["type"], str) else None
    if job is None:
        raise ValueError(f"TF_CONFIG: task.type is {json.dumps(task['type'])}, must be worker, chief or master")
    return job, _index(task["index"], "task.index")


def _index(value: object, where: str) -> int:
    try:
        index = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        index = -1
    if index < 0:
        raise ValueError(f"TF_CONFIG: {where} is {json.dumps(value)}, must be 0 or more")
    return index


def _tasks(cluster: dict[str, Any]) -> dict[str, dict[int, str]]:
    """{job: {index: address}}, indices ascending."""
    if cluster.get("chief") and cluster.get("master"):
        raise ValueError('TF_CONFIG: the cluster has both "chief" and "master", which are two names of one job')
    tasks: dict[str, dict[int, str]] = {job: {} for job in _JOBS.values()}
    owners: dict[str, str] = {}
    for name, addresses in cluster.items():
        job = _JOBS.get(name)
        if job is None or addresses is None:  # other jobs are ignored; null is how Go writes an empty list
            continue
        if not isinstance(addresses, (list, dict)):
            raise ValueError(f'TF_CONFIG: cluster.{name} must be a list of "host:port" or an object from index to '
                             f'"host:port", found {_kind(addresses)}')
        items: list[tuple[Any, Any]] = [*(enumerate(addresses) if isinstance(addresses, list) else addresses.items())]
        for key, address in items:
            index = _index(key, f"an index of cluster.{name}")
            if not isinstance(address, str) or ":" not in address:
                raise ValueError(f'TF_CONFIG: {name}/{index}: the address must be "host:port", found {json.dumps(address)}')
            if address in owners:
                raise ValueError(f"TF_CONFIG: {name}/{index}: {address} is already the address of {owners[address]}")
            owners[address] = f"{name}/{index}"
            tasks[job][index] = address
        if job == "chief" and len(tasks[job]) > 1:
            raise ValueError("TF_CONFIG: the cluster has more than one chief")
    return {job: dict(sorted(addresses.items())) for job, addresses in tasks.items()}


def _servers(addresses: dict[int, str]) -> list[str]:
    if not addresses:
        raise ValueError('TF_CONFIG: the cluster has no "ps"; training needs at least one')
    for expected, index in enumerate(addresses):
        if index != expected:
            raise ValueError(f"TF_CONFIG: ps/{expected} is missing, but ps/{index} is there: servers are numbered from 0 without gaps")
    return list(addresses.values())
