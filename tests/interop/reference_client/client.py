"""A second implementation of the protocol between workers and servers, with gRPC and NumPy alone.

It shows what proto/README.md says in 400 lines, and tests compare the servers' answers with it: whoever writes a client
in another language begins here. Programs use the package in python/.

    client = reference_client.connect("ps0:2222,ps1:2222", worker=0, workers=2)
    values = client.init({"w": w0}, optimizer={"name": "Adam", "hyperparameters": {"learning_rate": 1e-3}})
    result = client.push({"w": gradient_of(values["w"])}, examples=64)
    values = result.values
    client.close()

All calls must come from one thread. They block, each with a time limit. Every failure is an Error with a gRPC code.
"""

import collections
import contextlib
import numbers
import os
import pathlib
import socket
import threading
import time
import uuid

import grpc
import numpy as np

from reference_client import arrays, protocol

_READY, _FINISHED, _FAILED = 3, 4, 5
_MODES = {"sync": 2, "async": 3, "ssp": 4}
_OUTCOMES = {1: "accepted", 2: "stale", 3: "finished", 4: "rejected"}
_LEFT_FINISHED, _LEFT_FAILED = 1, 3
_CALL_SECONDS = 10
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)

# The outcome of a push, and the values after it. `outcome`: accepted, stale (computed from a version that is too old)
# or finished. `staleness`: number of versions between the values that it was computed from and its update.
Result = collections.namedtuple("Result", "outcome version staleness values")
Rows = arrays.Rows


class Error(Exception):
    def __init__(self, message, code=grpc.StatusCode.UNKNOWN):
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def _refusing():
    """Converts a ValueError about the caller's arguments to an Error with INVALID_ARGUMENT."""
    try:
        yield
    except ValueError as error:
        raise Error(str(error), grpc.StatusCode.INVALID_ARGUMENT) from None


def connect(servers, *, worker=0, workers=1, timeout=300, step_timeout=600, tls=None, token=None):
    """Returns a client of the servers. Waits at most `timeout` seconds for servers that are still starting.

    `servers`: "ps0:2222,ps1:2222", or a list, in the order of their index; this process is worker `worker` of
    `workers`. `tls`: (certificate, key, CA), paths of three PEM files. `token`: the job token, if the servers require
    one; default: the environment variable CAIRN_JOB_TOKEN.
    """
    token = token or os.environ.get("CAIRN_JOB_TOKEN")
    servers = servers.split(",") if isinstance(servers, str) else list(servers)
    if not servers or not all(servers):
        raise Error(f"servers: {','.join(servers)!r} names no server, or an empty one", grpc.StatusCode.INVALID_ARGUMENT)
    if not 0 <= worker < workers:
        raise Error(f"worker is {worker}, must be 0 to {workers - 1}: workers is {workers}", grpc.StatusCode.INVALID_ARGUMENT)
    return Client(servers, worker, [f"worker/{i}" for i in range(workers)], timeout, step_timeout, tls, token)


class Client:

    def __init__(self, servers, worker, tasks, timeout, step_timeout, tls, token=None):
        """`tasks`: names of all workers; `worker`: index of this worker."""
        self.worker, self.workers, self.timeout, self.step_timeout = worker, len(tasks), timeout, step_timeout
        self.task, self._tasks = tasks[worker], tasks
        self._metadata = (("cairn-job-token", token.strip()),) if token else ()
        # Identifies this process, so that servers can distinguish two processes of one worker.
        self._process = {"id": int.from_bytes(os.urandom(8), "little"), "host": socket.gethostname(), "pid": os.getpid()}
        self._addresses, self._incarnation, self._step, self._reads = servers, 0, 0, 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._failure = None  # guarded by _lock: why the job cannot continue
        self._streams = set()  # guarded by _lock: open requests, which a failure cancels
        self._shapes = {}
        self._waiting_for = ""
        options = [("grpc.max_receive_message_length", 2 * protocol.MAX_PAYLOAD), ("grpc.keepalive_time_ms", 5000),
                   ("grpc.keepalive_timeout_ms", 10000), ("grpc.http2.max_pings_without_data", 0),
                   # Traffic within the cluster ignores the proxies of the environment.
                   ("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2000)]
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
            return protocol.decode(f"{method}Response", call(request, timeout=_CALL_SECONDS,
                                                                 metadata=self._metadata))
        except grpc.RpcError as error:
            raise Error(f"{self._name(to)}: {error.details()}", error.code()) from None

    def _persist(self, attempt, seconds):
        """Retries an idempotent call while a server is unreachable or has no memory for it."""
        deadline, pause = time.monotonic() + seconds, 0.02
        while True:
            self._raise_failure()
            try:
                return attempt()
            except Error as error:
                self._raise_failure()
                if error.code not in _TRANSIENT or time.monotonic() >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _fail(self, error):
        """Fails the job and cancels every open request. The first failure is kept."""
        with self._lock:
            self._failure = self._failure or error
            streams = list(self._streams)
        for stream in streams:
            stream.cancel()

    def _raise_failure(self):
        with self._lock:
            failure = self._failure
        if failure:
            raise failure

    def _handshake(self, server):
        return self._call(server, "Connect", protocol=protocol.VERSION, server=server, client=self.task)

    def _describe(self):
        return [self._same_server(s, self._persist(lambda s=s: self._handshake(s), self.timeout))
                for s in range(len(self._channels))]

    def _same_server(self, server, described):
        if described["incarnation"] != self._handshakes[server]["incarnation"]:
            raise Error(f"{self._name(server)} has been restarted and has lost its variables", grpc.StatusCode.ABORTED)
        return described

    def _look_for_restarts(self):
        """Fails the job if a server process was replaced by a new one."""
        for server in range(len(self._channels)):
            try:
                self._same_server(server, self._handshake(server))
            except Error as error:
                if error.code == grpc.StatusCode.ABORTED:
                    self._fail(error)

    def _request(self, server, header, chunks=(), arena=None):
        """Sends one request and its chunks (offset, elements) on a new stream; stores the reply's values in `arena`."""
        answered = threading.Event()
        kind = next(iter(header))

        def frames():
            yield protocol.frame({"request_id": 1, **header})
            for offset, elements in chunks:
                yield protocol.frame({"request_id": 1, "chunk": {"offset": offset}}, memoryview(elements).cast("B"))
            if kind != "read":
                yield protocol.frame({"request_id": 1, "end": {}})
            answered.wait(self.step_timeout)  # the server ends a stream that its client closes

        stream = self._channels[server].stream_stream(f"/{protocol.SERVICE}/Session")(
            frames(), timeout=self.step_timeout, metadata=self._metadata)
        with self._lock:
            self._streams.add(stream)
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
            with self._lock:
                self._streams.discard(stream)
            stream.cancel()
        done = answer["done"]
        if done["code"]:
            code = next(c for c in grpc.StatusCode if c.value[0] == done["code"])
            raise Error(f"{kind}: {self._name(server)}: {done['message']}", code)
        return done

    def _on_all(self, call):
        """Runs call(server) for all servers concurrently. A restarted server is detected at once and cancels the other
        calls, and so does an interrupt, after which only close() may be called. Raises the first failure of any
        kind."""
        results, failures = [None] * len(self._channels), [None] * len(self._channels)

        def keep(server):
            try:
                results[server] = call(server)
            except BaseException as error:  # pylint: disable=broad-except  # raised below, in the caller's thread
                failures[server] = error
                if isinstance(error, Error):
                    self._look_for_restarts()
        # Daemons: an interrupted program does not wait for them when it exits.
        threads = [threading.Thread(target=keep, args=(s,), daemon=True) for s in range(1, len(results))]
        try:
            for thread in threads:
                thread.start()
            keep(0)
            if isinstance(failures[0], KeyboardInterrupt):
                raise failures[0]
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._fail(Error("interrupted", grpc.StatusCode.CANCELLED))
            raise
        self._raise_failure()
        for failure in filter(None, failures):
            raise failure
        return results

    # --- Before training ---

    def init(self, values, *, optimizer=None, mode="sync", max_staleness=None, lease=10.0):
        """Joins the job and returns the initial values.

        If the servers have no job, worker 0 creates it with `values`, {name: array}, and `optimizer`, the fields of the
        message OptimizerConfig; by default SGD. The other workers wait for the job; only the shapes of their values are
        used. `mode`: sync, async or ssp.
        """
        if mode not in _MODES:
            raise Error(f"mode is {mode!r}, must be one of {', '.join(_MODES)}", grpc.StatusCode.INVALID_ARGUMENT)
        with _refusing():
            values = {name: arrays.float32(value, f"variable '{name}'") for name, value in values.items()}
        self._shapes = {name: value.shape for name, value in values.items()}
        if self.worker == 0 and any(d["state"] != _READY for d in self._describe()):
            self._create(values, optimizer or {"name": "SGD"}, mode, max_staleness, lease)
        for server in range(len(self._channels)):
            self._await(server, condition=1)
        described = self._describe()
        self._job, self._layouts = described[0]["job"], [d["layout"] for d in described]
        self._slices = [d["slices"] for d in described]
        self._sizes = [sum(arrays.elements(s) for s in slices) for slices in self._slices]
        self._check()
        self._one_log = self._job["mode"] != _MODES["async"] or not described[-1]["sequences"]
        joined = {"worker": self.worker, "task": self.task, "process": self._process}
        for server in range(len(self._channels)):  # ps/0 draws the incarnation and seals it for the others
            answer = self._persist(lambda s=server: self._call(s, "Join", **joined), self.timeout)
            if server == 0:
                joined.update(incarnation=answer["incarnation"], incarnation_seal=answer["incarnation_seal"])
        self._incarnation = joined["incarnation"]
        threading.Thread(target=self._heartbeats, name="heartbeats", daemon=True).start()
        return self.pull()

    def _create(self, values, optimizer, mode, max_staleness, lease):
        job = {"run_id": uuid.uuid4().hex, "mode": _MODES[mode], "model_sha256": "python", "workers": self._tasks,
               "replicas_to_aggregate": self.workers, "optimizer": optimizer, "lease_seconds": lease,
               "servers": self._addresses}
        if max_staleness is not None:
            job["max_staleness"] = max_staleness
        placed, seal_key = arrays.place(self._shapes, len(self._channels)), os.urandom(32)
        for server, slices in enumerate(placed):
            self._call(server, "Create", job=job, slices=slices, seal_key=seal_key)
        layouts = [d["layout"] for d in self._describe()]
        self._on_all(lambda s: self._request(s, {"write": {"layout": layouts[s], "initialise": 1}},
                                             _chunks(arrays.gather(values, placed[s]))))

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
        try:
            while not self._closing.wait(self._job["lease_seconds"] / 4):
                for server in range(len(self._channels)):
                    self._heartbeat(server)
        except Exception as error:  # pylint: disable=broad-except  # no other thread joins this one
            self._fail(Error(f"heartbeats ended: {error!r}", grpc.StatusCode.INTERNAL))

    def _heartbeat(self, server):
        try:
            answer = self._call(server, "Heartbeat", worker=self.worker, incarnation=self._incarnation, step=self._step)
        except Error as error:
            if error.code == grpc.StatusCode.ABORTED and not self._closing.is_set():
                self._look_for_restarts()  # a more precise reason, if there is one
                self._fail(error)
            return
        if answer["state"] == _FAILED:
            self._fail(Error(f"the job has failed: {answer['failure']}", grpc.StatusCode.ABORTED))
        elif server == 0:
            self._waiting_for = answer["waiting_for"]

    # --- Training ---

    def pull(self):
        """Returns the current values, {name: array}; in a synchronous job all have the same version."""
        def attempt():
            marker = ""
            if self._one_log:
                self._reads += 1
                marker = f"{self.task}#{self._incarnation}.{self._reads}"
                self._call(0, "PlaceMarker", token=marker)
            arenas = [np.empty(size, "<f4") for size in self._sizes]
            self._versions = [d["version"] for d in self._on_all(
                lambda s: self._request(s, {"read": {"layout": self._layouts[s], "marker": marker}}, arena=arenas[s]))]
            return arrays.scatter(arenas, self._slices, self._shapes)
        return self._persist(attempt, self.step_timeout)

    def push(self, gradients, examples=1):
        """Pushes a gradient, {name: array or Rows}, of `examples` examples, computed from the last values, and waits
        for its update. The gradient of an absent variable is zero."""
        unknown = gradients.keys() - self._shapes.keys()
        if unknown:
            raise Error(f"no such variable: {', '.join(sorted(unknown))}", grpc.StatusCode.INVALID_ARGUMENT)
        if not isinstance(examples, numbers.Integral) or examples < 0:
            raise Error(f"examples is {examples!r}, must be a whole number of at least 0", grpc.StatusCode.INVALID_ARGUMENT)
        with _refusing():
            dense = {name: arrays.dense_gradient(name, gradients.get(name), shape) for name, shape in self._shapes.items()}
        self._step += 1
        begin = {"worker": self.worker, "incarnation": self._incarnation, "step": self._step, "examples": examples,
                 "read_values": 1, "position": self._step}
        arenas = [np.empty(size, "<f4") for size in self._sizes]
        bases = list(self._versions)

        def attempt(server):  # idempotent: a repeated push counts once
            header = {"push": {"layout": self._layouts[server], "base_version": bases[server], **begin}}
            return self._request(server, header, _chunks(arrays.gather(dense, self._slices[server])), arenas[server])

        done = self._on_all(lambda s: self._persist(lambda: attempt(s), self.step_timeout))
        if any(d["outcome"] == 4 for d in done):
            self._raise_failure()
            raise Error("this worker is no longer a member of the job: init() again", grpc.StatusCode.ABORTED)
        self._versions = [d["version"] for d in done]
        whole = all(d["has_values"] for d in done) and (not self._one_log or len(set(self._versions)) == 1)
        values = arrays.scatter(arenas, self._slices, self._shapes) if whole else self.pull()
        outcome = next((d["outcome"] for d in done if d["outcome"] == 2), done[0]["outcome"])
        return Result(_OUTCOMES[outcome], self._versions[0], max(d["staleness"] for d in done), values)

    def push_rows(self, name, ids, rows, examples=1):
        """Pushes rows of one variable, and waits for the update, like push()."""
        return self.push({name: Rows(ids, rows)}, examples)

    # --- The end ---

    def close(self, error=None, wait=True):
        """Leaves the job. With `error`, a text, the job fails for all workers. Without it, worker 0 waits until the
        other workers have left and then stops the servers, unless `wait` is False."""
        self._closing.set()
        try:
            if self._incarnation:
                self._leave(error, ends_job=self.worker == 0 and not error and wait)
        finally:
            for channel in self._channels:
                channel.close()

    def _leave(self, error, ends_job):
        servers = range(len(self._channels))
        if ends_job:
            self._await(0, condition=2, worker=0)
        for server in servers:
            with contextlib.suppress(Error):  # the server notices when the lease expires
                self._call(server, "Leave", worker=self.worker, incarnation=self._incarnation,
                           reason=_LEFT_FAILED if error else _LEFT_FINISHED, message=str(error or ""))
        if ends_job:
            for server in servers:
                self._call(server, "Finish")

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        self.close(error and f"{self.task}: {error!r}")


def _chunks(arena):
    size = protocol.MAX_PAYLOAD // 4  # elements
    return [(at, arena[at:at + size]) for at in range(0, len(arena), size)]
