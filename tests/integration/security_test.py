"""Access to a job: the token, certificates that name tasks, and one process for each task."""

import re
import signal
import subprocess
import time

from harness import (DONE, INCOMPATIBLE, MLP, REPOSITORY, TERMINATED, TIME_LIMIT, Cluster, IntegrationTest,
                     main, reserve_port, small_data)

TOKEN = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
JOB = ["--model", MLP, "--sync_replicas", "--train_steps=5", "--connect_timeout=20"]


def with_token(token):
    """Gives tasks the cluster by flags and the token by the environment."""
    return lambda cluster: lambda job, index: (
        cluster.by_flags(job, index)[0] + [f"--job_name={job}", f"--task_index={index}"], {"CAIRN_JOB_TOKEN": token})


class TokenTest(IntegrationTest):

    def start_server(self, cluster, *flags, told=None):
        server = cluster.start("ps", 0, *flags, told=told)
        self.assert_says(server, "Started server")
        return server

    def var(self, cluster, *arguments, env=None):
        where, _ = cluster.by_flags("ps", 0)
        return self.run_to_end("cairn", "var", *arguments, *where, "--timeout=5", env=env)

    def token_file(self, token=TOKEN):
        path = self.directory / "token"
        path.write_text(token + "\n")
        return f"--job_token_file={path}"

    def test_a_job_trains_when_all_tasks_have_the_token(self):
        cluster = Cluster(self, ps=2, workers=2)
        told = with_token(TOKEN)(cluster)
        servers = [cluster.start("ps", 0, self.token_file()), cluster.start("ps", 1, told=told)]
        workers = [cluster.start("worker", 0, *JOB, self.token_file()), cluster.start("worker", 1, *JOB, told=told)]
        self.assert_exit(DONE, *servers, *workers)
        for task in servers + workers:
            self.assertNotIn("OPEN AND NOT ENCRYPTED", task.stderr)
            self.assertNotIn(TOKEN, task.stderr + task.stdout)

    def test_a_worker_with_no_or_another_token_exits_with_3_and_the_remedy(self):
        cluster = Cluster(self, ps=1, workers=1)
        server = self.start_server(cluster, self.token_file())
        none = cluster.start("worker", 0, *JOB)
        other = cluster.start("worker", 0, *JOB, told=with_token(OTHER)(cluster))
        self.assert_exit(INCOMPATIBLE, none, other, seconds=20)
        self.assertRegex(none.stderr, r"ps/0 at .*: ps/0 wants the job token, and none was given: give --job_token_file")
        self.assertRegex(other.stderr, "the job token given is not the one of ps/0")
        self.assert_says(server, "a call from .* was refused: ps/0 wants the job token|was refused: the job token given")
        self.assertTrue(server.running)

    def test_the_command_line_needs_the_token_but_health_checks_do_not(self):
        cluster = Cluster(self, ps=1, workers=1)
        self.start_server(cluster, self.token_file())
        self.assertEqual(self.var(cluster, "set", "a", "1").code, INCOMPATIBLE)
        self.assertEqual(self.var(cluster, "set", "a", "1", env={"CAIRN_JOB_TOKEN": TOKEN}).code, DONE)
        where, _ = cluster.by_flags("ps", 0)
        status = self.run_to_end("cairn", "status", *where)
        self.assertRegex(status.stdout, "wants the job token")
        self.assertEqual(self.run_to_end("cairn", "status", *where, self.token_file()).code, DONE)
        check = self.run_to_end("cairn", "check", *where)
        self.assertRegex(check.stdout, r"(?s)ps/0 +FAULT .*wants the job token.*--job_token_file, CAIRN_JOB_TOKEN")
        self.assertEqual(self.run_to_end("cairn", "health", cluster.addresses["ps"][0]).code, DONE)

    def test_a_server_whose_token_differs_fails_the_job_with_its_name(self):
        cluster = Cluster(self, ps=2, workers=1)
        leader = cluster.start("ps", 0, self.token_file())
        follower = cluster.start("ps", 1, told=with_token(OTHER)(cluster))
        worker = cluster.start("worker", 0, *JOB, self.token_file())
        self.assert_exit(INCOMPATIBLE, worker, seconds=20)
        self.assertRegex(worker.stderr, "ps/1 at .*the job token given is not the one of ps/1")
        self.assertTrue(leader.running and follower.running)

    def test_a_malformed_token_is_refused_at_start(self):
        self.assert_refused(self.start("cairn-ps", "--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--job_name=ps",
                                       "--task_index=0", self.token_file("short")),
                            "--job_token_file: .*: a job token has 16 to 1024 characters, this one 5; `openssl rand -hex 32`")

    def test_a_server_without_token_and_tls_warns_that_it_is_open(self):
        server = self.start_server(Cluster(self, ps=1, workers=1))
        self.assert_says(server, "OPEN AND NOT ENCRYPTED: anyone on the network who reaches 0.0.0.0:.*--job_token_file")

    def test_workers_without_servers_require_the_token_of_each_other(self):
        cluster = Cluster(self, ps=0, workers=2)
        job = ["--model", MLP, "--mode=allreduce", "--train_steps=3", "--connect_timeout=20"]
        one = cluster.start("worker", 0, *job, "--reuse_port", self.token_file())
        two = cluster.start("worker", 1, *job, "--reuse_port")
        self.assert_exit(INCOMPATIBLE, two, seconds=30)
        self.assertRegex(two.stderr, "worker/0 wants the job token")
        one.signal(signal.SIGKILL)


class LocalTest(IntegrationTest):

    def test_cairn_train_refuses_other_tokens_and_admits_its_users_programs(self):
        run = self.start("cairn", "train", MLP, "--data_dir", small_data(), "--threads=1", "--epochs=1000", "--verbose",
                         "--sync_replicas")
        self.assert_says(run, "Started server with target: grpc://127.0.0.1:")
        port = re.search(r"Started server with target: grpc://127.0.0.1:(\d+)", run.stderr)[1]
        where = [f"--ps_hosts=127.0.0.1:{port}"]
        for line in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines():
            self.assertNotRegex(line, "JOB_TOKEN=")
        self.assertEqual(self.run_to_end("cairn", "status", *where).code, DONE)
        stranger = self.run_to_end("cairn", "status", *where, env={"CAIRN_JOB_TOKEN": OTHER})
        self.assertRegex(stranger.stdout, "the job token given is not the one of ps/0")
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)


class SameTaskTest(IntegrationTest):

    LONG = ["--model", MLP, "--sync_replicas", "--epochs=100000", "--lease=3"]

    def test_a_second_process_of_a_worker_exits_with_3_and_the_first_continues(self):
        cluster = Cluster(self, ps=1, workers=2)
        server = cluster.start("ps", 0)
        first, other = cluster.start("worker", 1, *self.LONG), cluster.start("worker", 0, *self.LONG)
        self.assert_says(server, r"worker/1 joined")
        second = cluster.start("worker", 1, *self.LONG)
        self.assert_exit(INCOMPATIBLE, second, seconds=30)
        self.assertRegex(second.stderr, fr"worker/1 is already running: process {first.pid} on \S+ \(ipv4:127.0.0.1:\d+\) is "
                                        fr"alive, and this is process {second.pid} on ")
        self.assertTrue(first.running and other.running)
        self.assertNotRegex(server.stderr, r"worker/1 joined \(incarnation 2\)")

    def test_a_restarted_worker_joins_before_its_old_lease_expires(self):
        cluster = Cluster(self, ps=1, workers=1)
        server = cluster.start("ps", 0)
        first = cluster.start("worker", 0, "--model", MLP, "--sync_replicas", "--epochs=100000", "--lease=60",
                              "--display_every=1")
        self.assert_says(first, r"^ *5/63 ")
        first.signal(signal.SIGKILL)
        first.wait(10)
        again = cluster.start("worker", 0, "--model", MLP, "--sync_replicas", "--epochs=100000", "--lease=60")
        since = time.monotonic()
        self.assert_says(server, r"(?s)joined \(incarnation 2\)")
        self.assertLess(time.monotonic() - since, 25, "half a lease")
        self.assertTrue(again.running)

    def test_a_paused_worker_that_was_replaced_exits_with_3(self):
        cluster = Cluster(self, ps=1, workers=1)
        server = cluster.start("ps", 0)
        first = cluster.start("worker", 0, *self.LONG)
        self.assert_says(server, "worker/0 joined")
        first.signal(signal.SIGSTOP)
        second = cluster.start("worker", 0, *self.LONG)
        self.assert_says(server, r"joined \(incarnation 2\)")
        first.signal(signal.SIGCONT)
        self.assert_exit(INCOMPATIBLE, first, seconds=30)
        self.assertRegex(first.stderr, f"worker/0 is already running: process {second.pid} on ")
        self.assertTrue(second.running)


    def test_a_second_server_of_an_index_exits_with_3(self):
        cluster = Cluster(self, ps=1, workers=1)
        first = cluster.start("ps", 0)
        self.assert_says(first, "Started server")
        second = cluster.start("ps", 0, f"--listen=127.0.0.1:{reserve_port(self)}")  # as on another host
        self.assert_exit(INCOMPATIBLE, second, seconds=20)
        self.assertRegex(second.stderr, f"ps/0 is already running: another process serves at {cluster.addresses['ps'][0]}")
        self.assertTrue(first.running)

    def test_a_second_worker_of_an_index_without_servers_exits_with_3(self):
        cluster = Cluster(self, ps=0, workers=2)
        job = ["--model", MLP, "--mode=allreduce", "--epochs=100000", "--lease=3", "--display_every=1", "--reuse_port"]
        workers = [cluster.start("worker", i, *job) for i in (0, 1)]
        self.assert_says(workers[0], r"^ *5/32 ")
        second = cluster.start("worker", 1, *job, f"--listen=127.0.0.1:{reserve_port(self)}")
        self.assert_exit(INCOMPATIBLE, second, seconds=30)
        self.assertRegex(second.stderr, f"worker/1 at .* is already running: process {workers[1].pid} on .* is alive, and this "
                                        f"is process {second.pid} on ")
        self.assertTrue(workers[0].running and workers[1].running)
        self.assertNotIn("joining again", workers[0].stderr)


class CertificateTest(IntegrationTest):

    def cert(self, task):
        directory = self.directory / "certs"
        run = subprocess.run([REPOSITORY / "deploy/make-certs.sh", directory, *(["--task", task] if task else [])], check=True,
                             timeout=TIME_LIMIT, capture_output=True, text=True)
        return run.stdout.split()

    def test_each_task_trains_with_its_own_certificate(self):
        cluster = Cluster(self, ps=2, workers=2)
        flags = ["--model", MLP, "--sync_replicas", "--train_steps=5", "--connect_timeout=20"]
        tasks = [cluster.start("ps", i, *self.cert(f"ps/{i}")) for i in (0, 1)]
        tasks += [cluster.start("worker", i, *flags, *self.cert(f"worker/{i}")) for i in (0, 1)]
        self.assert_exit(DONE, *tasks)

    def test_a_workers_certificate_does_not_serve_another_task(self):
        cluster = Cluster(self, ps=1, workers=2)
        server = cluster.start("ps", 0, *self.cert("ps/0"))
        flags = ["--model", MLP, "--sync_replicas", "--train_steps=5", "--connect_timeout=20"]
        pretends = cluster.start("worker", 0, *flags, *self.cert("worker/1"))
        self.assert_exit(1, pretends, seconds=30)
        self.assertRegex(pretends.stderr, r"the certificate of worker/1 may not create a job: only that of the chief")
        where, _ = cluster.by_flags("ps", 0)

        def var(task):
            return self.run_to_end("cairn", "var", "set", "a", "1", *where, "--timeout=5", *self.cert(task))
        self.assertRegex(var("worker/1").stderr, "may not create variables: only that of the chief .* or an operator")
        self.assertEqual(var("operator").code, DONE)
        unnamed = self.run_to_end("cairn", "status", *where, *self.cert(""))
        self.assertRegex(unnamed.stdout, "ps/0's certificate names its task, and the caller's names none")
        self.assertTrue(server.running)


if __name__ == "__main__":
    main()
