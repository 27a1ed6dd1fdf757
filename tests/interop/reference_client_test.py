#!/usr/bin/env python3
"""The reference client against real servers: exact values, both modes, TLS, and failures that end.

Needs gRPC and NumPy (Debian: python3-grpcio, python3-numpy); skipped, with a message, if no Python has them.
"""

import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests/integration")]
DEBIANS = "/usr/bin/python3"

try:
    import grpc
    import numpy as np
except ImportError:
    if sys.executable != DEBIANS and os.path.exists(DEBIANS):  # another Python stands before it in PATH
        os.execv(DEBIANS, [DEBIANS, "-B", __file__, *sys.argv[1:]])
    print("skipped: no grpc or no numpy for Python: apt-get install python3-grpcio python3-numpy", file=sys.stderr)
    sys.exit(77)

import harness  # noqa: E402
import reference_client  # noqa: E402
from harness import BIN_DIR, DONE, Cluster, IntegrationTest  # noqa: E402
from reference_client import arrays, protocol  # noqa: E402

LIMIT = harness.TIME_LIMIT
SGD = {"name": "SGD", "hyperparameters": {"learning_rate": 0.5}}


class ProtocolTest(unittest.TestCase):

    # google/protobuf/descriptor.proto, as far as we read it.
    DESCRIPTORS = {
        "FileDescriptorSet": {1: ("file", ["FileDescriptorProto"])},
        "FileDescriptorProto": {4: ("message_type", ["DescriptorProto"])},
        "DescriptorProto": {1: ("name", "string"), 2: ("field", ["FieldDescriptorProto"])},
        "FieldDescriptorProto": {1: ("name", "string"), 3: ("number", "int"), 4: ("label", "int"), 5: ("type", "int"),
                                 6: ("type_name", "string")},
    }
    TYPES = {1: "double", 2: "float", 3: "int", 4: "uint", 5: "int", 6: "fixed64", 8: "int", 9: "string", 12: "bytes", 14: "int"}
    REPEATED, MESSAGE = 3, 11

    def test_every_field_has_the_number_and_type_of_the_proto_files(self):
        self.addCleanup(protocol.MESSAGES.update, dict(protocol.MESSAGES))
        with tempfile.TemporaryDirectory() as directory:
            out = pathlib.Path(directory) / "set"
            subprocess.run(["protoc", f"-I{SOURCE / 'proto'}", f"--descriptor_set_out={out}",
                            *map(str, (SOURCE / "proto/cairn/v1").glob("*.proto"))], check=True, timeout=60)
            known = set(protocol.MESSAGES)
            protocol.MESSAGES.update(self.DESCRIPTORS)
            files = protocol.decode("FileDescriptorSet", out.read_bytes())["file"]
            for name in self.DESCRIPTORS:
                del protocol.MESSAGES[name]
        declared = {m["name"]: {f["number"]: self.field_of(f) for f in m["field"]} for file in files for m in file["message_type"]}
        for message in known:
            for number, field in protocol.MESSAGES[message].items():
                self.assertEqual(declared[message].get(number), field, f"{message}.{field[0]}")

    def field_of(self, field):
        kind = self.TYPES.get(field["type"])
        if field["type"] == self.MESSAGE:
            kind = field["type_name"].split(".")[-1]
            if kind.endswith("Entry"):
                return field["name"], "map"
        return field["name"], [kind] if field["label"] == self.REPEATED else kind

    def test_the_version_equals_that_of_the_servers(self):
        header = (SOURCE / "common/net/grpc/grpc_util.h").read_text(encoding="utf-8")
        self.assertEqual(protocol.VERSION, int(re.search(r"kProtocolVersion = (\d+)", header)[1]))

    def test_encoded_messages_are_decoded(self):
        job = {"run_id": "ü", "mode": 2, "workers": ["a", "b"], "max_staleness": -1, "lease_seconds": 0.5,
               "optimizer": {"name": "SGD", "hyperparameters": {"momentum": 0.25},
                             "learning_rate_schedule": {"name": "X", "numbers": {}, "boundaries": [1.5], "values": []}}}
        decoded = protocol.decode("Job", protocol.encode("Job", job))
        self.assertEqual({key: decoded[key] for key in job}, job)
        self.assertEqual(decoded["servers"], [])
        packed = protocol.decode("VariableSlice", b"\x12\x03\x01\xac\x02")  # packed, as C++ writes repeated numbers
        self.assertEqual(packed["shape"], [1, 300])
        packed = protocol.decode("LearningRateSchedule", b"\x1a\x10" + struct.pack("<2d", 1.5, -2))
        self.assertEqual(packed["boundaries"], [1.5, -2])


class ArraysTest(unittest.TestCase):

    def test_a_hundred_thousand_variables_are_placed_in_order_and_balanced(self):
        shapes = {f"layer_{i}/kernel": (1 + i % 7, 3) for i in range(100_000)}
        begun = time.process_time()
        placed = arrays.place(shapes, 8)
        self.assertLess(time.process_time() - begun, 20)  # 1 s; a quadratic placement took a minute
        loads = [sum(arrays.elements(s) for s in slices) for slices in placed]
        self.assertLessEqual(max(loads) - min(loads), 21)
        position = {name: i for i, name in enumerate(shapes)}
        for slices in placed:
            self.assertEqual(slices, sorted(slices, key=lambda s: position[s["name"]]))
        self.assertEqual(sum(map(len, placed)), len(shapes))

    def test_values_beyond_float32_are_refused(self):
        for value, fault in ((1 + 2j, "w: numbers of type complex128"), ("text", "numbers of type <U4"),
                             ([None], "numbers of type object"), ([1.0, 1e39], "1e.39 is too large for float32")):
            with self.assertRaisesRegex(ValueError, fault):
                arrays.float32(value, "w")
        self.assertTrue(np.isinf(arrays.float32(np.inf, "w")))

    def test_rows_must_fit_their_variable(self):
        for ids, values, fault in (([0, 1], [[-1, -1]], r"values have shape \(1, 2\), must be \(2, 2\) for 2 ids"),
                                   ([0, 1], -1, r"values have shape \(\)"),
                                   ([0], [[1, 2, 3]], r"values have shape \(1, 3\), must be \(1, 2\)"),
                                   (0, [[1, 2]], r"ids must be integers of shape \(n,\)"),
                                   ([0.0], [[1, 2]], "found float64"),
                                   ([True], [[1, 2]], "found bool"),
                                   ([-1], [[1, 2]], "rows -1 to -1 of 'w', which has 3"),
                                   ([3], [[1, 2]], "rows 3 to 3 of 'w', which has 3")):
            with self.assertRaisesRegex(ValueError, fault):
                arrays.dense_gradient("w", reference_client.Rows(ids, values), (3, 2))
        np.testing.assert_array_equal(arrays.dense_gradient("w", reference_client.Rows([], np.zeros((0, 2))), (3, 2)), np.zeros((3, 2)))


class ClientTest(IntegrationTest):

    def servers(self, count, *flags):
        self.cluster = Cluster(self, ps=count, workers=1)
        self.tasks = [self.cluster.start("ps", i, *flags) for i in range(count)]
        for task in self.tasks:
            self.assert_says(task, "Started server with target")
        return self.cluster.addresses["ps"]

    def connect(self, servers, **options):
        return reference_client.connect(servers, timeout=LIMIT, step_timeout=LIMIT, **options)

    def together(self, workers, run):
        """run(worker) in a thread for each, and what they return."""
        results = [None] * workers

        def keep(worker):
            try:
                results[worker] = run(worker)
            except Exception as error:  # pylint: disable=broad-except
                results[worker] = error
        threads = [threading.Thread(target=keep, args=(w,)) for w in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * LIMIT)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def test_a_synchronous_round_is_the_mean_of_all_workers_weighted_by_examples(self):
        servers = self.servers(2)
        first = {"w": np.arange(6, dtype="f4").reshape(2, 3), "b": np.float32(1)}

        def work(worker):
            client = self.connect(servers, worker=worker, workers=2)
            client.init(first, optimizer=SGD)
            for _ in range(3):
                # (1 * 1 + 5 * 3) / 4 = 4
                result = client.push({"w": np.full((2, 3), [1, 5][worker]), "b": [8, 0][worker]}, examples=[1, 3][worker])
            client.close()
            return result

        for result in self.together(2, work):
            self.assertEqual((result.outcome, result.version, result.staleness), ("accepted", 3, 0))
            np.testing.assert_array_equal(result.values["w"], first["w"] - 3 * 0.5 * 4)
            np.testing.assert_array_equal(result.values["b"], 1 - 3 * 0.5 * 2)
        self.assert_exit(DONE, *self.tasks)

    def test_asynchronous_pushes_are_applied_on_arrival(self):
        servers = self.servers(2)

        def work(worker):
            client = self.connect(servers, worker=worker, workers=3)
            client.init({"w": np.zeros(8, "f4")}, optimizer=SGD, mode="async")
            for _ in range(10):
                result = client.push({"w": np.full(8, -2)})
                self.assertEqual(result.outcome, "accepted")
            client.close(wait=False)

        self.together(3, work)
        reader = reference_client.connect(servers, timeout=LIMIT, workers=3)
        np.testing.assert_array_equal(reader.init({"w": np.zeros(8)})["w"], np.full(8, 30))
        reader.close(wait=False)

    def test_large_variables_are_split_and_rows_reach_their_shards(self):
        client = self.connect(self.servers(3))
        table = np.arange(3000 * 100, dtype="f4").reshape(3000, 100)
        values = client.init({"table": table, "small": np.ones(3)}, optimizer=SGD)
        np.testing.assert_array_equal(values["table"], table)
        self.assertTrue(all(slices for slices in client._slices))  # pylint: disable=protected-access
        values = client.push_rows("table", [0, 2999, 0], np.full((3, 100), 2)).values
        table[0] -= 2  # came twice
        table[2999] -= 1
        np.testing.assert_array_equal(values["table"], table)
        np.testing.assert_array_equal(values["small"], np.ones(3))
        client.close()
        self.assert_exit(DONE, *self.tasks)

    def test_the_optimizer_is_keras(self):
        client = self.connect(self.servers(1))
        w = m = v = np.zeros(5, "f8")
        client.init({"w": w}, optimizer={"name": "Adam", "hyperparameters": {"learning_rate": 0.01}})
        random = np.random.default_rng(1)
        for t in range(1, 6):
            g = random.normal(size=5).astype("f4")
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * np.square(g, dtype="f8")
            w = w - 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
            result = client.push({"w": g})
        np.testing.assert_allclose(result.values["w"], w, rtol=1e-5)
        client.close()

    def test_both_clients_see_the_same_values(self):
        servers = self.servers(2)
        client = self.connect(servers)
        client.init({"w": np.zeros(3, "f4")}, optimizer=SGD)
        client.push({"w": [1, -2.5, 1 / 1024]})
        hosts = f"--ps_hosts={','.join(servers)}"
        self.assertEqual(self.run_to_end("cairn", "var", "get", "w", hosts).stdout, "-0.5,1.25,-0.000488281\n")
        self.assert_exit(DONE, self.run_to_end("cairn", "var", "set", "w", "3,0.1,-7", "--force", hosts))
        np.testing.assert_array_equal(client.pull()["w"], np.array([3, 0.1, -7], "f4"))
        client.close()

    def test_a_learning_rate_schedule_is_followed(self):
        client = self.connect(self.servers(1))
        schedule = {"name": "PiecewiseConstantDecay", "boundaries": [1], "values": [0.5, 0.25]}
        client.init({"w": np.zeros(1)}, optimizer={"name": "SGD", "learning_rate_schedule": schedule})
        steps = [client.push({"w": [1]}).values["w"][0] for _ in range(4)]
        np.testing.assert_array_equal(np.diff(steps, prepend=0), [-0.5, -0.5, -0.25, -0.25])
        client.close()

    def test_scalars_and_empty_variables_keep_their_shapes(self):
        client = self.connect(self.servers(2))
        first = {"scalar": np.float32(1), "none": np.zeros((0, 3)), "thin": np.zeros((2, 0)), "w": np.ones(2)}
        values = client.init(first, optimizer=SGD)
        self.assertEqual({name: value.shape for name, value in values.items()},
                         {"scalar": (), "none": (0, 3), "thin": (2, 0), "w": (2,)})
        values = client.push({"scalar": 4, "none": np.zeros((0, 3)), "w": [2, 4]}).values
        np.testing.assert_array_equal(values["scalar"], -1)
        np.testing.assert_array_equal(values["w"], [0, -1])
        client.close()

    def test_a_server_that_was_restarted_ends_the_step_and_is_named(self):
        servers = self.servers(2)
        client = self.connect(servers)
        client.init({"a": np.zeros(2), "b": np.zeros(2)})
        self.tasks[1].signal(harness.signal.SIGKILL)
        self.assert_exit(-harness.signal.SIGKILL, self.tasks[1])
        self.assert_says(self.cluster.start("ps", 1), "Started server with target")
        with self.assertRaisesRegex(reference_client.Error, f"ps/1 at {servers[1]} has been restarted") as caught:
            client.push({"a": np.zeros(2)})
        self.assertEqual(caught.exception.code, grpc.StatusCode.ABORTED)

    def test_an_exception_in_any_server_s_thread_is_raised(self):
        client = self.connect(self.servers(2))
        client.init({"a": np.zeros(2), "b": np.zeros(2)})
        request = client._request  # pylint: disable=protected-access

        def broken(server, *arguments, **options):
            if server == 1:
                raise MemoryError("of the test")
            return request(server, *arguments, **options)

        client._request = broken  # pylint: disable=protected-access
        with self.assertRaisesRegex(MemoryError, "of the test"):
            client.pull()

    def test_proxies_of_the_environment_are_not_used(self):
        servers = self.servers(1)
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"), "http://127.0.0.1:9")
        os.environ.update(proxies)
        for name in proxies:
            self.addCleanup(os.environ.pop, name)
        client = self.connect(servers)
        client.close()

    def test_traffic_is_encrypted_with_the_servers_certificates(self):
        certs = self.directory / "certs"
        subprocess.run([SOURCE / "deploy/make-certs.sh", certs, "localhost"], check=True, timeout=LIMIT, capture_output=True)
        files = [str(certs / name) for name in ("cert.pem", "key.pem", "ca.pem")]
        servers = self.servers(1, *(f"--tls_{kind}={file}" for kind, file in zip(("cert", "key", "ca"), files)))
        servers = [address.replace("127.0.0.1", "localhost") for address in servers]
        with self.assertRaisesRegex(reference_client.Error, "ps/0 at localhost"):
            reference_client.connect(servers, timeout=1)
        client = self.connect(servers, tls=files)
        client.init({"w": np.ones(2)}, optimizer=SGD)
        np.testing.assert_array_equal(client.push({"w": [2, 4]}).values["w"], [0, -1])
        client.close()

    def test_errors_name_the_fault(self):
        client = self.connect(self.servers(1))
        client.init({"w": np.zeros((2, 3))})
        for gradients, fault in (({"w": np.zeros(6)}, r"'w': shape \(6,\), registered \(2, 3\)"),
                                 ({"v": 1}, "no such variable: v"),
                                 ({"w": reference_client.Rows([2], np.zeros((1, 3)))}, "rows 2 to 2 of 'w', which has 2"),
                                 ({"w": np.zeros((2, 3), "c8")}, "gradient of 'w': numbers of type complex64")):
            with self.assertRaisesRegex(reference_client.Error, fault):
                client.push(gradients)
        for examples in (-1, 1.5, None):
            with self.assertRaisesRegex(reference_client.Error, "examples is"):
                client.push({}, examples)
        with self.assertRaisesRegex(reference_client.Error, "worker is 2, must be 0 to 1"):
            reference_client.connect("localhost:1", worker=2, workers=2)
        with self.assertRaisesRegex(reference_client.Error, "mode is 'synchronous', must be one of sync, async, ssp"):
            client.init({"w": np.zeros((2, 3))}, mode="synchronous")
        addresses = client._addresses  # pylint: disable=protected-access
        other = reference_client.connect(addresses, worker=1, workers=2, timeout=LIMIT)
        with self.assertRaisesRegex(reference_client.Error, r"'w' has shape \(5,\) here and \(2, 3\) on the servers"):
            other.init({"w": np.zeros(5)})
        other.close()
        client.close()

    def test_an_interrupt_ends_a_step_and_leaves_no_thread_that_python_waits_for(self):
        servers = self.servers(2)
        clients = [None, None]

        def join(worker):
            clients[worker] = self.connect(servers, worker=worker, workers=2)
            clients[worker].init({"a": np.zeros(2), "b": np.zeros(2)})
        self.together(2, join)
        before = set(threading.enumerate())
        timer = threading.Timer(0.5, os.kill, (os.getpid(), harness.signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            clients[0].push({"a": np.zeros(2)})  # waits for the push of worker/1
        self.assertEqual([thread for thread in set(threading.enumerate()) - before if not thread.daemon], [])
        self.assertLess(time.monotonic() - started, LIMIT / 2)
        clients[0].close(error="interrupted")

    def test_waiting_for_an_unreachable_server_ends(self):
        with self.assertRaisesRegex(reference_client.Error, "ps/0 at localhost:1"):
            reference_client.connect("localhost:1", timeout=0.5)

    def test_a_server_that_dies_ends_the_step(self):
        client = reference_client.connect(self.servers(1), timeout=LIMIT, step_timeout=2)
        client.init({"w": np.zeros(2)})
        self.tasks[0].signal(harness.signal.SIGKILL)
        with self.assertRaises(reference_client.Error) as caught:
            client.push({"w": np.zeros(2)})
        self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)

    def test_a_worker_that_fails_ends_the_job_for_all(self):
        servers = self.servers(1)

        def work(worker):
            client = self.connect(servers, worker=worker, workers=2)
            if worker == 1:
                client.init({"w": np.zeros(2)})
                client.close(error="worker/1: no more data")
                return None
            with self.assertRaises(reference_client.Error) as caught:  # wherever it is when that happens
                client.init({"w": np.zeros(2)})
                client.push({"w": np.zeros(2)})
                client.push({"w": np.zeros(2)})
            return str(caught.exception)

        self.assertIn("no more data", self.together(2, work)[0])


if __name__ == "__main__":
    harness.main()
