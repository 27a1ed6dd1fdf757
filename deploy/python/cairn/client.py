"""A worker's side of training, for models that are not Cairn's: NumPy arrays in, NumPy arrays out.

    client = cairn.connect("ps0:2222,ps1:2222", worker=0, workers=2)
    values = client.init({"w": w0}, optimizer={"class_name": "Adam", "config": {"learning_rate": 1e-3}})
    result = client.push({"w": gradient_of(values["w"])}, examples=64)
    values = result.values
    client.close()

Calls come from one thread and block, each with a limit. Every failure is a cairn.Error with gRPC's code.
"""

import collections
import contextlib
import json
import os
import pathlib
import threading
import time
import uuid

import grpc
import numpy as np

from cairn import protocol

_READY, _FINISHED, _FAILED = 3, 4, 5
_MODES = {"sync": 2, "async": 3, "ssp": 4}
_OUTCOMES = {1: "accepted", 2: "stale", 3: "finished", 4: "rejected"}
_LEFT_FINISHED, _LEFT_FAILED = 1, 3
_CALL_SECONDS = 10
_SMALLEST_SPLIT = 256 << 10  # bytes
_MOST_BANDS = 256
_CHUNK = protocol.MAX_PAYLOAD // 4  # elements

# What became of a push, and the values that it left. `outcome`: accepted, stale (computed from too old a version) or
# finished; `staleness`: versions between the values it was computed from and its turn.
Result = collections.namedtuple("Result", "outcome version staleness values")
# Rows of a variable whose first axis is long: a gradient that is zero elsewhere. Rows that come twice are added up.
Rows = collections.namedtuple("Rows", "ids values")


class Error(Exception):
    def __init__(self, message, code=grpc.StatusCode.UNKNOWN):
        super().__init__(message)
        self.code = code


def connect(servers=None, *, worker=None, workers=None, timeout=300, step_timeout=600, tls=None):
    """A client of the servers, which may still be starting: at most `timeout` seconds are waited for them.

    `servers`: "ps0:2222,ps1:2222", in the order of their index. Without it TF_CONFIG says who the servers and the
    workers are, and which of them this is. `tls`: (certificate, key, CA), three paths in PEM.
    """
    if servers is None:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        trainers = [(job, i) for job in ("chief", "worker") for i in range(len(cluster.get(job) or []))]
        servers, workers = cluster["ps"], len(trainers)
        worker = trainers.index((task["type"], int(task["index"])))
    elif isinstance(servers, str):
        servers = servers.split(",")
    return Client(servers, worker or 0, workers or 1, timeout, step_timeout, tls)


class Client:

    def __init__(self, servers, worker, workers, timeout, step_timeout, tls):
        self.worker, self.workers, self.timeout, self.step_timeout = worker, workers, timeout, step_timeout
        self.task = f"worker/{worker}"
        self._addresses, self._incarnation, self._step, self._reads = servers, 0, 0, 0
        self._failure, self._closing = None, threading.Event()
        self._shapes = {}
        options = [("grpc.max_receive_message_length", 2 * protocol.MAX_PAYLOAD), ("grpc.keepalive_time_ms", 5000),
                   ("grpc.keepalive_timeout_ms", 10000), ("grpc.http2.max_pings_without_data", 0),
                   ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2000)]
        if tls:
            cert, key, ca = (pathlib.Path(path).read_bytes() for path in tls)
            credentials = grpc.ssl_channel_credentials(ca, key, cert)
            self._channels = [grpc.secure_channel(s, credentials, options) for s in servers]
        else:
            self._channels = [grpc.insecure_channel(s, options) for s in servers]
        self._handshakes = [self._persist(lambda s=s: self._handshake(s), timeout) for s in range(len(servers))]

    # --- Calls ---

    def _name(self, server):
        return f"ps/{server} at {self._addresses[server]}"

    def _call(self, to, method, **values):
        call = self._channels[to].unary_unary(f"/{protocol.SERVICE}/{method}")
        request = protocol.encode(f"{method}Request", values)
        try:
            return protocol.decode(f"{method}Response", call(request, timeout=_CALL_SECONDS))
        except grpc.RpcError as error:
            raise Error(f"{self._name(to)}: {error.details()}", error.code()) from None

    def _persist(self, attempt, seconds):
        """Repeats what may be repeated while a server cannot be reached or has no memory for it."""
        codes = grpc.StatusCode
        deadline, pause = time.monotonic() + seconds, 0.02
        while True:
            try:
                return attempt()
            except Error as error:
                passing = error.code in (codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED, codes.RESOURCE_EXHAUSTED)
                if not passing or time.monotonic() >= deadline:
                    raise
            if self._failure:
                raise self._failure
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _handshake(self, server):
        return self._call(server, "Connect", protocol=protocol.VERSION, server=server, client=self.task)

    def _describe(self):
        described = []
        for server, before in enumerate(self._handshakes):
            now = self._persist(lambda s=server: self._handshake(s), self.timeout)
            if now["incarnation"] != before["incarnation"]:
                raise Error(f"{self._name(server)} has been restarted and has lost its variables", grpc.StatusCode.ABORTED)
            described.append(now)
        return described

    def _request(self, server, header, chunks=(), arena=None):
        """One request on a stream of its own: sends chunks (offset, elements), puts answered values into `arena`."""
        answered = threading.Event()
        kind = next(iter(header))

        def frames():
            yield protocol.frame({"request_id": 1, **header})
            for offset, elements in chunks:
                yield protocol.frame({"request_id": 1, "chunk": {"offset": offset}}, memoryview(elements).cast("B"))
            if kind != "read":
                yield protocol.frame({"request_id": 1, "end": {}})
            answered.wait(self.step_timeout)  # the server ends a stream that its client closes

        stream = self._channels[server].stream_stream(f"/{protocol.SERVICE}/Session")(frames(), timeout=self.step_timeout)
        try:
            for data in stream:
                answer, payload = protocol.unframe(data)
                if answer["done"] is not None:
                    break
                offset = answer["chunk"]["offset"]
                arena[offset:offset + len(payload) // 4] = np.frombuffer(payload, "<f4")
            else:
                raise Error(f"{self._name(server)} has closed the stream", grpc.StatusCode.UNAVAILABLE)
        except grpc.RpcError as error:
            waits = f"; waits for {self._waiting_for}" if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else ""
            raise Error(f"{kind}: {self._name(server)}: {error.details()}{waits}", error.code()) from None
        finally:
            answered.set()
            stream.cancel()
        done = answer["done"]
        if done["code"]:
            code = next(c for c in grpc.StatusCode if c.value[0] == done["code"])
            raise Error(f"{kind}: {self._name(server)}: {done['message']}", code)
        return done

    def _on_all(self, call):
        """call(server) for all servers at the same time; the first failure is raised."""
        results = [None] * len(self._channels)

        def keep(server):
            try:
                results[server] = call(server)
            except Error as error:
                results[server] = error
        threads = [threading.Thread(target=keep, args=(s,)) for s in range(1, len(results))]
        for thread in threads:
            thread.start()
        keep(0)
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Error):
                raise result
        return results

    # --- Before training ---

    def init(self, values, *, optimizer="SGD", mode="sync", max_staleness=None, lease=10.0):
        """Joins the job, and returns the values that training begins with.

        Worker 0 gives servers that are empty `values`, {name: array}, and the optimizer, Keras' object or its name;
        the others wait for it, and give values for their shapes alone. `mode`: sync, async or ssp.
        """
        values = {name: np.ascontiguousarray(value, "<f4") for name, value in values.items()}
        self._shapes = {name: value.shape for name, value in values.items()}
        if self.worker == 0 and any(d["state"] != _READY for d in self._describe()):
            self._create(values, optimizer, mode, max_staleness, lease)
        for server in range(len(self._channels)):
            self._await(server, condition=1)
        described = self._describe()
        self._job, self._layouts = described[0]["job"], [d["layout"] for d in described]
        self._slices = [d["slices"] for d in described]
        self._sizes = [sum(_elements(s) for s in slices) for slices in self._slices]
        self._check()
        self._one_log = self._job["mode"] != _MODES["async"] or not described[-1]["sequences"]
        joined = {"worker": self.worker, "task": self.task}
        for server in range(len(self._channels)):
            joined["incarnation"] = self._persist(lambda s=server: self._call(s, "Join", **joined),
                                                  self.timeout)["incarnation"]
        self._incarnation = joined["incarnation"]
        self._waiting_for = ""
        threading.Thread(target=self._heartbeats, name="heartbeats", daemon=True).start()
        return self.pull()

    def _create(self, values, optimizer, mode, max_staleness, lease):
        if isinstance(optimizer, str):
            optimizer = {"class_name": optimizer}
        numbers = {k: float(v) for k, v in (optimizer.get("config") or {}).items() if isinstance(v, (int, float))}
        job = {"run_id": uuid.uuid4().hex, "mode": _MODES[mode], "model_sha256": "python",
               "workers": [f"worker/{i}" for i in range(self.workers)], "replicas_to_aggregate": self.workers,
               "optimizer": {"name": optimizer["class_name"], "hyperparameters": numbers}, "lease_seconds": lease,
               "servers": self._addresses}
        if max_staleness is not None:
            job["max_staleness"] = max_staleness
        placed = _place(self._shapes, len(self._channels))
        for server, slices in enumerate(placed):
            self._call(server, "Create", job=job, slices=slices)
        layouts = [d["layout"] for d in self._describe()]
        self._on_all(lambda s: self._request(s, {"write": {"layout": layouts[s], "initialise": 1}},
                                             _chunks(_gather(values, placed[s]))))

    def _await(self, server, **condition):
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._persist(lambda: self._call(server, "Wait", wait_seconds=1.0, **condition), self.timeout)
            if answer["holds"]:
                return
            if time.monotonic() >= deadline:
                raise Error(f"waited {self.timeout} s for {self._name(server)}: {answer['missing']}",
                            grpc.StatusCode.DEADLINE_EXCEEDED)

    def _check(self):
        theirs = {s["name"]: tuple(s["shape"]) for slices in self._slices for s in slices}
        for name in sorted(theirs.keys() | self._shapes.keys()):
            if theirs.get(name) != self._shapes.get(name):
                raise Error(f"variable '{name}' has shape {self._shapes.get(name, 'none')} here and "
                            f"{theirs.get(name, 'none')} on the servers", grpc.StatusCode.FAILED_PRECONDITION)

    def _heartbeats(self):
        while not self._closing.wait(self._job["lease_seconds"] / 4):
            for server in range(len(self._channels)):
                try:
                    answer = self._call(server, "Heartbeat", worker=self.worker, incarnation=self._incarnation,
                                        step=self._step)
                    if answer["state"] == _FAILED:
                        raise Error(f"the job has failed: {answer['failure']}", grpc.StatusCode.ABORTED)
                    if server == 0:
                        self._waiting_for = answer["waiting_for"]
                except Error as error:
                    if error.code == grpc.StatusCode.ABORTED:
                        self._failure = error

    # --- Training ---

    def pull(self):
        """Current values, {name: array}: in a synchronous job of one version."""
        def attempt():
            mark = ""
            if self._one_log:
                self._reads += 1
                mark = f"{self.task}#{self._incarnation}.{self._reads}"
                self._call(0, "Mark", token=mark)
            arenas = [np.empty(size, "<f4") for size in self._sizes]
            self._versions = [d["version"] for d in self._on_all(
                lambda s: self._request(s, {"read": {"layout": self._layouts[s], "mark": mark}}, arena=arenas[s]))]
            return self._scatter(arenas)
        return self._persist(attempt, self.step_timeout)

    def push(self, gradients, examples=1):
        """Gives a gradient, {name: array or Rows}, of so many examples, computed from the last values, and waits for
        the update it goes into. What is not given is zero."""
        unknown = gradients.keys() - self._shapes.keys()
        if unknown:
            raise Error(f"no such variable: {', '.join(sorted(unknown))}", grpc.StatusCode.INVALID_ARGUMENT)
        dense = {name: self._dense(name, gradients.get(name)) for name in self._shapes}
        self._step += 1
        begin = {"worker": self.worker, "incarnation": self._incarnation, "step": self._step, "examples": examples,
                 "read_values": 1, "position": self._step}
        arenas = [np.empty(size, "<f4") for size in self._sizes]
        bases = list(self._versions)

        def attempt(server):  # repeated, it counts once
            header = {"push": {"layout": self._layouts[server], "base_version": bases[server], **begin}}
            return self._request(server, header, _chunks(_gather(dense, self._slices[server])), arenas[server])

        done = self._on_all(lambda s: self._persist(lambda: attempt(s), self.step_timeout))
        if any(d["outcome"] == 4 for d in done):
            raise self._failure or Error("this worker has lost its place: init() again", grpc.StatusCode.ABORTED)
        self._versions = [d["version"] for d in done]
        whole = all(d["has_values"] for d in done) and (not self._one_log or len(set(self._versions)) == 1)
        values = self._scatter(arenas) if whole else self.pull()
        outcome = next((d["outcome"] for d in done if d["outcome"] == 2), done[0]["outcome"])
        return Result(_OUTCOMES[outcome], self._versions[0], max(d["staleness"] for d in done), values)

    def push_rows(self, name, ids, rows, examples=1):
        """push() of rows of one variable."""
        return self.push({name: Rows(ids, rows)}, examples)

    def _dense(self, name, gradient):
        shape = self._shapes[name]
        if gradient is None:
            return np.zeros(shape, "<f4")
        if isinstance(gradient, Rows):
            dense, ids = np.zeros(shape, "<f4"), np.asarray(gradient.ids)
            if ids.size and not (0 <= ids.min() and ids.max() < shape[0]):
                raise Error(f"rows {ids.min()} to {ids.max()} of '{name}', which has {shape[0]}",
                            grpc.StatusCode.INVALID_ARGUMENT)
            np.add.at(dense, ids, np.asarray(gradient.values, "<f4"))
            return dense
        dense = np.ascontiguousarray(gradient, "<f4")
        if dense.shape != shape:
            raise Error(f"gradient of '{name}': shape {dense.shape}, registered {shape}", grpc.StatusCode.INVALID_ARGUMENT)
        return dense

    def _scatter(self, arenas):
        values = {name: np.empty(shape, "<f4") for name, shape in self._shapes.items()}
        for arena, slices in zip(arenas, self._slices):
            for s in slices:
                rows = values[s["name"]].reshape(_rows(s["shape"]), -1)[s["row_begin"]:s["row_end"]]
                rows[...] = arena[s["offset"]:s["offset"] + rows.size].reshape(rows.shape)
        return values

    # --- The end ---

    def close(self, error=None, wait=True):
        """Leaves the job. With `error`, a text, the job fails for all. Worker 0 then waits until the others have left,
        and ends the servers, unless told not to."""
        self._closing.set()
        if self._incarnation:
            reason = _LEFT_FAILED if error else _LEFT_FINISHED
            if self.worker == 0 and not error and wait:
                self._await(0, condition=2, worker=0)
            for server in range(len(self._channels)):
                with contextlib.suppress(Error):  # it notices by itself, when the lease is over
                    self._call(server, "Leave", worker=self.worker, incarnation=self._incarnation, reason=reason,
                               message=str(error or ""))
            if self.worker == 0 and not error and wait:
                for server in range(len(self._channels)):
                    self._call(server, "Finish")
        for channel in self._channels:
            channel.close()

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        self.close(error and f"{self.task}: {error!r}")


def _rows(shape):
    return shape[0] if shape else 1


def _elements(piece):
    return int(np.prod(piece["shape"][1:], dtype=np.int64)) * (piece["row_end"] - piece["row_begin"])


def _gather(values, slices):
    pieces = [values[s["name"]].reshape(_rows(s["shape"]), -1)[s["row_begin"]:s["row_end"]].ravel() for s in slices]
    return np.concatenate(pieces) if pieces else np.empty(0, "<f4")


def _chunks(arena):
    return [(at, arena[at:at + _CHUNK]) for at in range(0, len(arena), _CHUNK)]


def _place(shapes, servers):
    """[server] -> slices, balanced by bytes. Large variables are split, between bands of rows alone: a norm is a sum
    over bands, and so the same however a variable splits."""
    total = 4 * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values())
    limit = max(_SMALLEST_SPLIT, -(-total // servers))
    parts = []
    for name, shape in shapes.items():
        rows = _rows(shape)
        band = max(1, -(-rows // _MOST_BANDS))
        bands = -(-rows // band)
        count = max(1, min(-(-4 * int(np.prod(shape, dtype=np.int64)) // limit), bands, servers))
        edges = [min(rows, bands * i // count * band) for i in range(count + 1)]
        parts += [{"name": name, "shape": list(shape), "row_begin": a, "row_end": b} for a, b in zip(edges, edges[1:])]
    placed, load = [[] for _ in range(servers)], [0] * servers
    for part in sorted(parts, key=_elements, reverse=True):
        lightest = load.index(min(load))
        load[lightest] += _elements(part)
        placed[lightest].append(part)
    order = list(shapes)
    for slices in placed:
        slices.sort(key=lambda s: (order.index(s["name"]), s["row_begin"]))
    return placed
