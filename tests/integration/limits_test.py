"""System limits, environment variables and hostile clients: none of them stops a job without a message."""

import json
import os
import pathlib
import resource
import socket
import struct
import subprocess
import time

import harness
from harness import DONE, FAILURE, IntegrationTest, main

GREETING = b"l-cairn"  # how handshakes at a data port begin


class LimitedTest(IntegrationTest):

    def limited(self, limits, program, *arguments):
        """Starts a program under prlimit(1), whose options are `limits`."""
        command = ["prlimit", *limits, harness.BIN_DIR / program, *arguments]
        environment = {**os.environ, harness.MARK: self.mark}
        process = harness.Process(program, command, environment, self.directory)
        self.processes.append(process)
        return process

    def server(self, limits=(), *flags):
        """Starts a cairn-ps and waits until it listens. Returns the process and its port."""
        port = harness.reserve_port(self)
        process = self.limited(limits, "cairn-ps", f"--ps_hosts=127.0.0.1:{port}", "--job_name=ps", "--task_index=0",
                               "--reuse_port", *flags)
        self.assert_says(process, "Started server")
        return process, port

    def healthy(self, port):
        return self.run_to_end("cairn", "health", f"127.0.0.1:{port}").code == DONE

    def assert_becomes_healthy(self, port):
        deadline = time.monotonic() + harness.TIME_LIMIT
        while not self.healthy(port):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.2)

    def connections(self, port, count):
        """Connections that are closed when the test ends."""
        made = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
        for one in made:
            self.addCleanup(one.close)
        return made

    def data_port(self, server):
        self.assert_says(server, r"data channel for other hosts on port \d+")
        return int(server.stderr.split("data channel for other hosts on port ")[1].split()[0])


def frame(kind, stream, payload):
    """An HTTP/2 frame without flags."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, 0, stream) + payload


def header(name, thousand_bytes):
    """An HPACK header without indexing."""
    return b"\0" + bytes([len(name)]) + name + b"\x7f\xe9\x06" + thousand_bytes


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def resident_bytes(process):
    return int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def threads(process):
    return len(os.listdir(f"/proc/{process.pid}/task"))


class EnvironmentTest(IntegrationTest):

    def sha(self, **environment):
        summary = self.directory / "summary.json"
        run = self.train(harness.MLP, "--epochs", 1, "--limit_examples", 256, "--novalidation", "--seed", 3,
                         "--deterministic", "--summary", summary, env=environment)
        self.assert_exit(DONE, run)
        return json.loads(summary.read_text())["parameters_sha256"], run

    def test_proxies_and_library_settings_do_not_change_results(self):
        nowhere = "http://127.0.0.1:9"
        plain, _ = self.sha()
        proxies = {name: nowhere for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY")}
        settings = {"OMP_THREAD_LIMIT": "1", "OMP_DYNAMIC": "true", "DNNL_DEFAULT_FPMATH_MODE": "BF16",
                    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16", "GRPC_POLL_STRATEGY": "none", "LC_ALL": "de_DE.UTF-8",
                    "MALLOC_PERTURB_": "165"}
        changed, run = self.sha(**proxies, **settings)
        self.assertEqual(changed, plain)
        self.assertRegex(run.stderr, r"ignored the environment variable OMP_THREAD_LIMIT \(")


class LimitsTest(LimitedTest):

    def test_a_low_soft_limit_of_descriptors_is_raised_and_logged(self):
        server, port = self.server(["--nofile=30:4096"])
        self.assert_says(server, r"limit of open files raised from 30 to 4096 \(ulimit -n\)")
        self.connections(port, 100)
        self.assertTrue(self.healthy(port))

    def test_a_hard_limit_that_is_too_low_is_named_at_start(self):
        run = self.limited(["--nofile=20:20"], "cairn-ps", "--ps_hosts=127.0.0.1:1", "--job_name=ps", "--task_index=0")
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, r"at most 20 files may be open \(ulimit -n\), at least \d+ are needed")

    def test_more_connections_than_descriptors_do_not_end_a_server(self):
        server, port = self.server(["--nofile=96:96"])
        idle = self.connections(port, 150)
        self.assert_says(server, r"out of file descriptors: this process may have 96 \(ulimit -n\)")
        self.assertLess(descriptors(server), 96)
        for one in idle:
            one.close()
        self.assert_becomes_healthy(port)

    def test_too_little_address_space_for_threads_is_reported_in_one_line(self):
        run = self.limited(["--as=150000000"], "cairn-ps", "--ps_hosts=127.0.0.1:1", "--job_name=ps", "--task_index=0")
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, r"address space is limited to .*, at least .* are needed .*ulimit -v")
        self.assertNotIn("terminate called", run.stderr)

    def test_a_job_runs_in_little_address_space_or_reports_how_much_it_needs(self):
        for kib, code, says in [(250000, FAILURE, r"at least 0\.\d+ GiB are needed .* from 250000 to \d+ KiB"),
                                (450000, DONE, "no usable GPU: |^$")]:
            run = self.run_to_end("/bin/sh", "-c", f'ulimit -v {kib} && exec "$@"', "sh", harness.BIN_DIR / "cairn",
                                  "train", harness.MLP, "--data_dir", harness.small_data(), "--workers=2",
                                  "--sync_replicas", "--limit_examples=256", "--novalidation", "--epochs=1")
            self.assert_exit(code, run)
            self.assertRegex(run.stderr, says)

    def test_a_file_that_grows_beyond_its_limit_is_named(self):
        run = self.limited(["--fsize=10000"], "cairn", "digits", self.directory / "digits")
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, r"cannot write .*digits/\S+: File too large")

    def test_endless_headers_do_not_exceed_the_memory_limit(self):
        server, port = self.server([], "--memory_limit=50MB")
        flood, = self.connections(port, 1)
        flood.settimeout(30)
        request = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/cairn.v1.ParameterServer/Connect"),
            (b":authority", b"localhost"), (b"content-type", b"application/grpc"), (b"te", b"trailers")])
        flood.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, b"") + frame(1, 1, request))
        block = frame(9, 1, b"".join(header(b"pad%d" % i, b"a" * 1000) for i in range(10))) * 20
        deadline = time.monotonic() + harness.TIME_LIMIT
        with self.assertRaises(OSError):  # closed
            while time.monotonic() < deadline:
                flood.sendall(block)
        self.assert_says(server, "closed the connection that received the most")
        while resident_bytes(server) > 400 << 20 and time.monotonic() < deadline:
            time.sleep(0.1)  # gRPC frees the headers after the connection
        self.assertLess(resident_bytes(server), 400 << 20)
        self.assert_becomes_healthy(port)

    def test_connections_without_a_handshake_get_no_thread_and_are_closed(self):
        server, port = self.server()
        before = threads(server)
        half = self.connections(self.data_port(server), 100)
        for one in half:
            one.sendall(GREETING)
        mute = self.connections(port, 20)
        time.sleep(1)  # time for threads to start, if any did
        self.assertLessEqual(threads(server), before + 2)
        deadline = time.monotonic() + 20
        open_ones = half + mute
        while open_ones and time.monotonic() < deadline:
            open_ones = [one for one in open_ones if not closed(one)]
            time.sleep(0.2)
        self.assertEqual(len(open_ones), 0)
        self.assertTrue(self.healthy(port))


def closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    main()
