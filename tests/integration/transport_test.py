"""Gradients and values over gRPC, TCP, Unix sockets and shared memory: the transport is selected automatically, results
are bit-identical on each, and killed tasks leave nothing behind."""

import os
import signal
import socket
import subprocess

from harness import (DONE, MLP, REPOSITORY, TIME_LIMIT, Cluster, IntegrationTest, main, read_summary)

BY = {"grpc": "by gRPC", "tcp": "by TCP", "unix": "by a Unix socket", "shm": "by shared memory"}


def shared_memory_of(pid):
    """The number of Cairn's shared segments that a process has mapped."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return sum("memfd:cairn" in line for line in maps)


class TransportTest(IntegrationTest):

    def start_job(self, *flags, ps=(), workers=2, steps=30):
        cluster = Cluster(self, ps=2, workers=workers)
        tasks = {f"ps/{i}": cluster.start("ps", i, *ps) for i in range(2)}
        for i in range(workers):
            tasks[f"worker/{i}"] = cluster.start("worker", i, "--model", MLP, "--sync_replicas",
                                                 f"--train_steps={steps}", "--summary=summary.json", "--batch_size=16",
                                                 *flags)
        return cluster, tasks

    def test_every_transport_gives_the_same_bits(self):
        digests = set()
        for transport, by in BY.items():
            _, tasks = self.start_job(f"--transport={transport}")
            self.assert_says(tasks["worker/1"], by)
            self.assert_exit(DONE, *tasks.values())
            digests.add(read_summary(self.directory / "summary.json")["parameters_sha256"])
        self.assertEqual(len(digests), 1, digests)

    def test_shared_memory_is_preferred_and_a_servers_transport_respected(self):
        for allowed, by in (("auto", BY["shm"]), ("unix", BY["unix"]), ("tcp", BY["tcp"]), ("grpc", BY["grpc"])):
            _, tasks = self.start_job(ps=[f"--transport={allowed}"])
            self.assert_says(tasks["worker/0"], by)
            self.assert_exit(DONE, *tasks.values())

    def test_means_go_to_a_backup_by_every_transport(self):
        digests = set()
        for transport, by in BY.items():
            _, tasks = self.start_job("--ps_replication=1", ps=[f"--transport={transport}"])
            for i in range(2):
                self.assert_says(tasks[f"ps/{i}"], f"to the backup of ps/{i}'s shard at .*: {by}")
            self.assert_exit(DONE, *tasks.values())
            digests.add(read_summary(self.directory / "summary.json")["parameters_sha256"])
        self.assertEqual(len(digests), 1, digests)

    def test_with_tls_everything_stays_encrypted(self):
        certs = self.directory / "certs"
        subprocess.run([REPOSITORY / "deploy/make-certs.sh", certs], check=True, timeout=TIME_LIMIT,
                       stdout=subprocess.DEVNULL)
        tls = [f"--tls_cert={certs}/cert.pem", f"--tls_key={certs}/key.pem", f"--tls_ca={certs}/ca.pem"]
        _, tasks = self.start_job("--transport=shm", "--ps_replication=1", *tls, ps=tls)
        self.assert_says(tasks["worker/0"], BY["grpc"])
        self.assert_says(tasks["ps/0"], f"to the backup of ps/0's shard at .*: {BY['grpc']}")
        self.assert_exit(DONE, *tasks.values())

    def test_grpc_is_used_if_the_data_port_is_taken(self):
        with socket.create_server(("0.0.0.0", 0)) as taken:
            _, tasks = self.start_job("--transport=tcp", ps=[f"--data_port={taken.getsockname()[1]}"])
            self.assert_says(tasks["ps/0"],
                             "no port for the data channel: cannot listen on a TCP socket: Address already in use")
            self.assert_says(tasks["worker/0"], BY["grpc"])
            self.assert_exit(DONE, *tasks.values())

    def test_a_killed_worker_leaves_no_shared_memory_behind(self):
        _, tasks = self.start_job("--lease=1", "--display_every=1", steps=100000)
        self.assert_says(tasks["worker/1"], BY["shm"])
        self.assert_says(tasks["worker/0"], "^11/")
        server = tasks["ps/0"]
        both = shared_memory_of(server.pid)
        self.assertGreaterEqual(both, 2)
        tasks["worker/1"].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, tasks["worker/1"])
        self.assert_says(server, "worker/1 sent no heartbeat for 1 s")  # long after its stream has ended
        self.assertLess(shared_memory_of(server.pid), both)
        self.assertFalse([name for name in os.listdir("/dev/shm") if "cairn" in name])

    def test_an_unknown_transport_is_refused(self):
        self.assert_refused(self.run_to_end("cairn-ps", "--transport=pigeon"), "--transport.*pigeon")


if __name__ == "__main__":
    main()
