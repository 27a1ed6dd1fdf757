"""Mutual TLS between all tasks: accepted and refused peers, the messages of both sides, renewed certificates."""

import signal
import subprocess

from harness import (CNN, DONE, FAILURE, MLP, REPOSITORY, RETRYABLE, TERMINATED, TIME_LIMIT, USAGE, Cluster, IntegrationTest,
                     Relay, main, read_summary, reserve_port, small_data)

WITHIN = "--connect_timeout=3"  # how long a refused worker tries to connect
REFUSED = "a peer was refused: "


class TlsTest(IntegrationTest):

    def certs(self, name, *hosts):
        """A directory with a CA and a certificate. A second call makes another certificate of the same CA."""
        directory = self.directory / name
        subprocess.run([REPOSITORY / "deploy/make-certs.sh", directory, *hosts], check=True, timeout=TIME_LIMIT,
                       stdout=subprocess.DEVNULL)
        return directory

    def flags(self, certs, ca=None):
        return [f"--tls_cert={certs}/cert.pem", f"--tls_key={certs}/key.pem", f"--tls_ca={ca or certs / 'ca.pem'}"]

    def both_cas(self, a, b):
        path = self.directory / "both.pem"
        path.write_text((a / "ca.pem").read_text() + (b / "ca.pem").read_text())
        return path

    def start_server(self, cluster, *flags):
        server = cluster.start("ps", 0, *flags)
        self.assert_says(server, "Started server")
        return server

    def var(self, cluster, *arguments, seconds=3):
        where, _ = cluster.by_flags("ps", 0)
        return self.run_to_end("cairn", "var", *arguments, *where, f"--timeout={seconds}")


class JobTest(TlsTest):

    def test_cairn_train_runs_a_job_over_tls(self):
        out = self.directory / "out.json"
        run = self.train(MLP, "--ps=2", "--workers=2", "--sync_replicas", "--epochs=1", "--batch_size=50",
                         f"--summary={out}", *self.flags(self.certs("a")))
        self.assert_exit(DONE, run)
        plain = self.directory / "plain.json"
        self.assert_exit(DONE, self.train(MLP, "--ps=2", "--workers=2", "--sync_replicas", "--epochs=1",
                                          "--batch_size=50", f"--summary={plain}"))
        self.assertEqual(read_summary(out)["parameters_sha256"], read_summary(plain)["parameters_sha256"])

    def test_tasks_may_be_started_in_any_order(self):
        flags = self.flags(self.certs("a"))
        cluster = Cluster(self, ps=2, workers=2)
        worker = [cluster.start("worker", i, "--model", MLP, "--sync_replicas", "--train_steps=10", *flags)
                  for i in (0, 1)]
        self.assert_says(worker[0], "to step 10")
        follower = cluster.start("ps", 1, *flags)
        self.assert_says(follower, "Started server")
        leader = cluster.start("ps", 0, *flags)
        self.assert_exit(DONE, *worker, follower, leader)
        for server in (leader, follower):
            self.assertNotRegex(server.stderr, "NOT ENCRYPTED|TLS:")

    def test_a_running_job_can_be_cancelled(self):
        flags = self.flags(self.certs("a"))
        cluster = Cluster(self, ps=2, workers=2)
        servers = [cluster.start("ps", i, *flags) for i in (0, 1)]
        workers = [cluster.start("worker", i, "--model", MLP, "--sync_replicas", "--epochs=10000", "--display_every=1",
                                 *flags) for i in (0, 1)]
        self.assert_says(workers[0], "^ 3/32 - ")
        cancelled = self.run_to_end("cairn", "job", "cancel", *cluster.by_flags("ps", 0)[0], *flags)
        self.assert_exit(DONE, cancelled)
        self.assert_exit(FAILURE, *workers)
        self.assert_exit(DONE, *servers)
        for worker in workers:
            self.assertRegex(worker.stderr, r"the job was cancelled by \S+@\S+ \(`cairn job cancel`\)")

    def test_broken_connections_are_restored(self):
        """Breaks all connections to ps/0, from workers and from the other server."""
        flags = self.flags(self.certs("a"))
        cluster = Cluster(self, ps=2, workers=1)
        port = reserve_port(self)
        relay = Relay(self, port)
        cluster.addresses["ps"][0] = f"127.0.0.1:{relay.port}"
        tasks = [cluster.start("ps", 0, f"--listen=127.0.0.1:{port}", *flags), cluster.start("ps", 1, *flags)]
        worker = cluster.start("worker", 0, "--model", CNN, "--sync_replicas", "--train_steps=40",
                               "--display_every=1", *flags)
        self.assert_says(worker, "^11/63 - ")
        self.assertGreater(relay.cut(), 1)
        self.assert_exit(DONE, worker, *tasks)


class RefusedTest(TlsTest):
    """The exit code is RETRYABLE, as for an unreachable server, because certificates may be renewed meanwhile."""

    def setUp(self):
        super().setUp()
        self.a, self.b = self.certs("a"), self.certs("b")
        self.cluster = Cluster(self, ps=1, workers=1)

    def refused(self, pattern, *flags):
        worker = self.cluster.start("worker", 0, "--model", MLP, "--train_steps=10", WITHIN, *flags)
        self.assert_exit(RETRYABLE, worker, seconds=30)
        address = self.cluster.addresses["ps"][0]
        self.assertRegex(worker.stderr, f"not reached within 3 s: ps/0 at {address}: {pattern}")

    def test_a_worker_without_certificates_is_refused(self):
        server = self.start_server(self.cluster, *self.flags(self.a))
        self.refused("it closes the connection: it requires TLS")
        self.assert_says(server, REFUSED + "it speaks plain text, without --tls_cert")
        self.assertTrue(server.running)

    def test_a_worker_of_another_ca_does_not_trust_the_server(self):
        self.start_server(self.cluster, *self.flags(self.a))
        self.refused("TLS: its certificate is not from our --tls_ca", *self.flags(self.b))

    def test_a_worker_of_another_ca_that_trusts_the_server_is_not_trusted(self):
        server = self.start_server(self.cluster, *self.flags(self.a))
        self.refused("it closes the connection: .*refuses our TLS certificate",
                     *self.flags(self.b, self.both_cas(self.a, self.b)))
        self.assert_says(server, REFUSED + "its certificate is not from our --tls_ca")

    def test_a_server_without_tls_is_refused(self):
        server = self.start_server(self.cluster)
        self.refused("TLS: it speaks plain text, without --tls_cert", *self.flags(self.a))
        self.assert_says(server, "NOT ENCRYPTED: .*0.0.0.0:.*--tls_cert, --tls_key and --tls_ca")

    def test_a_server_whose_certificate_is_for_another_host_is_refused(self):
        port = self.cluster.addresses["ps"][0].split(":")[1]
        self.cluster.addresses["ps"] = [f"127.0.0.2:{port}"]
        server = self.start_server(self.cluster, *self.flags(self.a))
        self.assert_says(server, "is for localhost, 127.0.0.1, ::1, not for 127.0.0.2: clients will refuse")
        self.refused("TLS: its certificate is for other host names", *self.flags(self.a))

    def test_a_server_of_another_ca_is_not_followed(self):
        """On the link between servers, ps/1 checks the certificate of ps/0, and ps/0 that of ps/1."""
        cluster = Cluster(self, ps=2, workers=1)
        both = self.both_cas(self.a, self.b)
        leader = cluster.start("ps", 0, *self.flags(self.a))
        follower = cluster.start("ps", 1, *self.flags(self.b, both))
        worker = cluster.start("worker", 0, "--model", MLP, "--sync_replicas", "--train_steps=10",
                               "--step_timeout=25", *self.flags(self.a, both))
        self.assert_says(leader, REFUSED + "its certificate is not from our --tls_ca")
        self.assert_says(follower, "waiting for ps/0 at .*: it closes the connection: .*refuses our TLS certificate")
        self.assert_exit(RETRYABLE, worker)

    def test_there_is_no_warning_on_loopback(self):
        server = self.start_server(self.cluster, "--listen=" + self.cluster.addresses["ps"][0])
        server.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, server)
        self.assertNotIn("NOT ENCRYPTED", server.stderr)


class VarTest(TlsTest):

    def test_variables_are_set_and_read_over_tls(self):
        flags = self.flags(self.certs("a"))
        cluster = Cluster(self, ps=1, workers=0)
        self.start_server(cluster, *flags)
        self.assert_exit(DONE, self.var(cluster, "set", "v", "1,2.5", *flags))
        got = self.var(cluster, "get", "v", *flags)
        self.assert_exit(DONE, got)
        self.assertEqual(got.stdout, "1,2.5\n")
        stranger = self.var(cluster, "get", "v")
        self.assert_exit(RETRYABLE, stranger)
        self.assertEqual(stranger.stdout, "")


class RenewalTest(TlsTest):

    def test_a_server_changes_to_another_ca_without_a_restart(self):
        used, other = self.certs("used"), self.certs("other")
        cluster = Cluster(self, ps=1, workers=0)
        server = self.start_server(cluster, *self.flags(used))
        before = self.flags(self.copy(used, "before"))
        self.assert_exit(DONE, self.var(cluster, "set", "v", "1", *before))
        for name in ("key.pem", "cert.pem", "ca.pem"):
            (other / name).replace(used / name)
        # Servers read the files again every 10 s.
        self.assert_exit(DONE, self.var(cluster, "get", "v", *self.flags(used), seconds=TIME_LIMIT))
        refused = self.var(cluster, "get", "v", *before)
        self.assert_exit(RETRYABLE, refused)
        self.assertIn("TLS: its certificate is not from our --tls_ca", refused.stderr)
        self.assertTrue(server.running)

    def test_a_waiting_client_uses_its_renewed_certificate(self):
        used, other = self.certs("used"), self.certs("other")
        cluster = Cluster(self, ps=1, workers=1)
        server = self.start_server(cluster, *self.flags(self.copy(other, "server")))
        worker = cluster.start("worker", 0, "--model", MLP, "--train_steps=10", *self.flags(used))
        self.assert_says(worker, "waiting for ps/0 at .*: TLS: its certificate is not from our --tls_ca")
        for name in ("key.pem", "cert.pem", "ca.pem"):
            (other / name).replace(used / name)
        self.assert_exit(DONE, worker, server)

    def copy(self, directory, name):
        copied = self.directory / name
        copied.mkdir()
        for path in directory.iterdir():
            (copied / path.name).write_bytes(path.read_bytes())
        return copied


class UsageTest(TlsTest):

    def setUp(self):
        super().setUp()
        self.a = self.certs("a")

    def everywhere(self, pattern, *flags):
        where = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--task_index=0"]
        for program, arguments in (
                ("cairn-ps", [*where, "--job_name=ps"]),
                ("cairn-worker", [*where, "--job_name=worker", "--model", MLP, "--data_dir", small_data()]),
                ("cairn", ["var", "list", "--ps_hosts=127.0.0.1:1"]),
                ("cairn", ["train", MLP, "--data_dir", small_data()])):
            self.assert_refused(self.run_to_end(program, *arguments, *flags), f"^{program}.*: {pattern}")

    def test_flags_that_are_missing_are_named(self):
        self.everywhere("--tls_key and --tls_ca are missing", f"--tls_cert={self.a}/cert.pem")

    def test_a_missing_file_is_named(self):
        self.everywhere("--tls_ca: .*nowhere.pem", *self.flags(self.a, "nowhere.pem"))

    def test_a_file_of_another_kind_is_named(self):
        self.everywhere("--tls_ca: .*key.pem: holds no certificate in PEM", *self.flags(self.a, self.a / "key.pem"))

    def test_the_script_prints_its_usage(self):
        script = [REPOSITORY / "deploy/make-certs.sh"]
        helped = subprocess.run([*script, "--help"], capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
        self.assertIn("deploy/make-certs.sh DIR [HOST...]", helped.stdout)
        for arguments in ([], ["certs", "--task", ""], ["certs", "--task="], ["certs", "--task"]):
            run = subprocess.run([*script, *arguments], capture_output=True, timeout=TIME_LIMIT, check=False, cwd=self.directory)
            self.assertEqual(run.returncode, USAGE, arguments)


if __name__ == "__main__":
    main()
