#!/usr/bin/env python3
"""deploy/python against real servers: exact values, both modes, TLS, and failures that end.

Needs gRPC and NumPy (Debian: python3-grpcio, python3-numpy); skipped, aloud, where no Python here has them.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "deploy/python"), str(SOURCE / "tests/integration")]
DEBIANS = "/usr/bin/python3"

try:
    import grpc
    import numpy as np
except ImportError:
    if sys.executable != DEBIANS and os.path.exists(DEBIANS):  # another Python stands before it in PATH
        os.execv(DEBIANS, [DEBIANS, "-B", __file__, *sys.argv[1:]])
    print("skipped: no grpc or no numpy for Python: apt-get install python3-grpcio python3-numpy", file=sys.stderr)
    sys.exit(77)

import cairn  # noqa: E402
import harness  # noqa: E402
from cairn import protocol  # noqa: E402
from harness import BIN_DIR, DONE, Cluster, IntegrationTest  # noqa: E402

LIMIT = harness.TIME_LIMIT
SGD = {"class_name": "SGD", "config": {"learning_rate": 0.5}}


class ProtocolTest(unittest.TestCase):

    # google/protobuf/descriptor.proto, as far as we read it.
    DESCRIPTORS = {
        "FileDescriptorSet": {1: ("file", ["FileDescriptorProto"])},
        "FileDescriptorProto": {4: ("message_type", ["DescriptorProto"])},
        "DescriptorProto": {1: ("name", "string"), 2: ("field", ["FieldDescriptorProto"])},
        "FieldDescriptorProto": {1: ("name", "string"), 3: ("number", "int"), 4: ("label", "int"), 5: ("type", "int"),
                                 6: ("type_name", "string")},
    }
    TYPES = {1: "double", 2: "float", 3: "int", 4: "uint", 5: "int", 8: "int", 9: "string", 12: "bytes", 14: "int"}
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

    def test_the_version_is_the_servers(self):
        header = (SOURCE / "common/net/grpc_util.h").read_text(encoding="utf-8")
        self.assertEqual(protocol.VERSION, int(re.search(r"kProtocolVersion = (\d+)", header)[1]))

    def test_what_is_encoded_is_decoded(self):
        job = {"run_id": "ü", "mode": 2, "workers": ["a", "b"], "max_staleness": -1, "lease_seconds": 0.5,
               "optimizer": {"name": "SGD", "hyperparameters": {"learning_rate": 0.25}}}
        decoded = protocol.decode("Job", protocol.encode("Job", job))
        self.assertEqual({key: decoded[key] for key in job}, job)
        self.assertEqual(decoded["servers"], [])
        packed = protocol.decode("VariableSlice", b"\x12\x03\x01\xac\x02")  # as C++ writes repeated numbers
        self.assertEqual(packed["shape"], [1, 300])


class ClientTest(IntegrationTest):

    def servers(self, count, *flags):
        self.cluster = Cluster(self, ps=count, workers=1)
        self.tasks = [self.cluster.start("ps", i, *flags) for i in range(count)]
        for task in self.tasks:
            self.assert_says(task, "Started server with target")
        return self.cluster.addresses["ps"]

    def connect(self, servers, **options):
        return cairn.connect(servers, timeout=LIMIT, step_timeout=LIMIT, **options)

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

    def test_pushes_count_when_they_come_in_an_asynchronous_job(self):
        servers = self.servers(2)

        def work(worker):
            client = self.connect(servers, worker=worker, workers=3)
            client.init({"w": np.zeros(8, "f4")}, optimizer=SGD, mode="async")
            for _ in range(10):
                result = client.push({"w": np.full(8, -2)})
                self.assertEqual(result.outcome, "accepted")
            client.close(wait=False)

        self.together(3, work)
        reader = cairn.connect(servers, timeout=LIMIT, workers=3)
        np.testing.assert_array_equal(reader.init({"w": np.zeros(8)})["w"], np.full(8, 30))
        reader.close(wait=False)

    def test_large_variables_are_split_and_rows_are_rows(self):
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
        client.init({"w": w}, optimizer={"class_name": "Adam", "config": {"learning_rate": 0.01}})
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
        self.assert_exit(DONE, self.run_to_end("cairn", "var", "set", "w", "3,0.1,-7", hosts))
        np.testing.assert_array_equal(client.pull()["w"], np.array([3, 0.1, -7], "f4"))
        client.close()

    def test_tf_config_says_who_is_who(self):
        servers = self.servers(1)
        config = {"cluster": {"ps": servers, "chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}
        os.environ["TF_CONFIG"] = harness.json.dumps(config)
        self.addCleanup(os.environ.pop, "TF_CONFIG")
        client = cairn.connect(timeout=LIMIT)
        self.assertEqual((client.worker, client.workers), (1, 2))
        client.close()

    def test_traffic_is_encrypted_with_the_servers_certificates(self):
        certs = self.directory / "certs"
        subprocess.run([SOURCE / "deploy/make-certs.sh", certs, "localhost"], check=True, timeout=LIMIT, capture_output=True)
        files = [str(certs / name) for name in ("cert.pem", "key.pem", "ca.pem")]
        servers = self.servers(1, *(f"--tls_{kind}={file}" for kind, file in zip(("cert", "key", "ca"), files)))
        servers = [address.replace("127.0.0.1", "localhost") for address in servers]
        with self.assertRaisesRegex(cairn.Error, "ps/0 at localhost"):
            cairn.connect(servers, timeout=1)
        client = self.connect(servers, tls=files)
        client.init({"w": np.ones(2)}, optimizer=SGD)
        np.testing.assert_array_equal(client.push({"w": [2, 4]}).values["w"], [0, -1])
        client.close()

    def test_what_is_wrong_is_named(self):
        client = self.connect(self.servers(1))
        client.init({"w": np.zeros((2, 3))})
        for gradients, fault in (({"w": np.zeros(6)}, r"'w': shape \(6,\), registered \(2, 3\)"),
                                 ({"v": 1}, "no such variable: v"),
                                 ({"w": cairn.Rows([2], np.zeros((1, 3)))}, "rows 2 to 2 of 'w', which has 2")):
            with self.assertRaisesRegex(cairn.Error, fault):
                client.push(gradients)
        other = cairn.connect(client._addresses, worker=1, workers=2, timeout=LIMIT)  # pylint: disable=protected-access
        with self.assertRaisesRegex(cairn.Error, r"variable 'w' has shape \(5,\) here and \(2, 3\) on the servers"):
            other.init({"w": np.zeros(5)})
        other.close()
        client.close()

    def test_a_server_that_is_not_there_ends_the_wait(self):
        with self.assertRaisesRegex(cairn.Error, "ps/0 at localhost:1"):
            cairn.connect("localhost:1", timeout=0.5)

    def test_a_server_that_dies_ends_the_step(self):
        client = cairn.connect(self.servers(1), timeout=LIMIT, step_timeout=2)
        client.init({"w": np.zeros(2)})
        self.tasks[0].signal(harness.signal.SIGKILL)
        with self.assertRaises(cairn.Error) as caught:
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
            with self.assertRaises(cairn.Error) as caught:  # wherever it is when that happens
                client.init({"w": np.zeros(2)})
                client.push({"w": np.zeros(2)})
                client.push({"w": np.zeros(2)})
            return str(caught.exception)

        self.assertIn("no more data", self.together(2, work)[0])


if __name__ == "__main__":
    harness.main()
