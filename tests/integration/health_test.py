"""Health checks of a server (grpc.health.v1), reflection, and an orderly end at SIGTERM."""

import signal
import subprocess

from harness import (DONE, FAILURE, REPOSITORY, TERMINATED, TIME_LIMIT, USAGE, Cluster, IntegrationTest, main,
                     reserve_port)


class HealthTest(IntegrationTest):

    def start_server(self, *flags):
        cluster = Cluster(self, ps=1, workers=1)
        server = cluster.start("ps", 0, *flags)
        self.assert_says(server, "Started server")
        return cluster, server

    def health(self, address, *flags):
        return self.run_to_end("cairn", "health", address, *flags)

    def test_a_server_is_live_from_the_start_and_ready_with_variables(self):
        cluster, server = self.start_server()
        address = cluster.addresses["ps"][0]
        live = self.health(address)
        self.assert_exit(DONE, live)
        self.assertEqual(live.stdout, f"{address}: SERVING\n")
        empty = self.health(address, "--service=ready")
        self.assert_exit(FAILURE, empty)
        self.assertIn("NOT_SERVING", empty.stderr)
        where, _ = cluster.by_flags("ps", 0)
        self.assert_exit(DONE, self.run_to_end("cairn", "var", "set", "a", "1", *where))
        self.wait_until_ready(address)
        server.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, server)
        gone = self.health(address)
        self.assert_exit(FAILURE, gone)
        self.assertEqual(gone.stderr, f"cairn health: {address}: connection refused\n")

    def wait_until_ready(self, address):
        """Waits for a health status, which a server updates several times a second."""
        for _ in range(100):
            ready = self.health(address, "--service=ready")
            if ready.code == DONE:
                return
        self.fail(f"not ready: {ready.stderr}")

    def test_unknown_services_and_unreachable_servers_are_errors(self):
        cluster, _ = self.start_server()
        unknown = self.health(cluster.addresses["ps"][0], "--service=bread")
        self.assert_exit(FAILURE, unknown)
        self.assertIn("no service 'bread'", unknown.stderr)
        nobody = self.health(f"127.0.0.1:{reserve_port(self)}")
        self.assert_exit(FAILURE, nobody)
        self.assertIn("connection refused", nobody.stderr)
        no_port = self.health("127.0.0.1")
        self.assert_exit(USAGE, no_port)

    def test_health_checks_work_over_tls(self):
        certs = self.directory / "certs"
        subprocess.run([REPOSITORY / "deploy/make-certs.sh", certs], check=True, timeout=TIME_LIMIT,
                       stdout=subprocess.DEVNULL)
        tls = [f"--tls_cert={certs}/cert.pem", f"--tls_key={certs}/key.pem", f"--tls_ca={certs}/ca.pem"]
        cluster, _ = self.start_server(*tls)
        address = cluster.addresses["ps"][0]
        self.assert_exit(DONE, self.health(address, *tls))
        self.assert_exit(FAILURE, self.health(address))


if __name__ == "__main__":
    main()
