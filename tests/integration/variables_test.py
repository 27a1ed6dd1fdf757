"""Variables shared by several programs: deploy/examples/shared_variables.cc, and `cairn var`."""

import signal

from harness import DONE, FAILURE, RETRYABLE, TERMINATED, USAGE, Cluster, IntegrationTest, main


class SharedVariablesTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self, ps=1, workers=0)
        self.server = self.cluster.start("ps", 0)
        self.address = self.cluster.addresses["ps"][0]
        self.assert_says(self.server, "Started server")

    def shared_variables(self, *arguments):
        program = self.run_to_end("shared_variables", self.address, *arguments)
        self.assert_exit(DONE, program)
        return program.stdout

    def var(self, *arguments, code=DONE):
        program = self.run_to_end("cairn", "var", *arguments, f"--ps_hosts={self.address}")
        self.assert_exit(code, program)
        return program.stdout if code == DONE else program.stderr

    def test_a_process_reads_the_values_that_another_one_has_set(self):
        self.assertEqual(self.shared_variables(), "a * b = 12\n")
        self.assertEqual(self.shared_variables("a", "10"), "a * b = 40\n")
        self.assertEqual(self.shared_variables(), "a * b = 40\n")

    def test_cairn_var_sets_gets_and_lists_them(self):
        self.shared_variables()
        self.assertEqual(self.var("list"), "a\t[]\tps/0\nb\t[]\tps/0\n")
        self.assertEqual(self.var("get", "a"), "3\n")
        self.assertEqual(self.var("set", "a", "10"), "")
        self.assertEqual(self.shared_variables(), "a * b = 40\n")

    def test_cairn_var_creates_a_vector(self):
        self.var("set", "v", "1,2.5,-3")
        self.assertEqual(self.var("get", "v"), "1,2.5,-3\n")
        self.assertEqual(self.var("list"), "v\t[3]\tps/0\n")

    def test_an_unknown_variable_is_refused_with_the_existing_ones(self):
        self.shared_variables()
        self.assertRegex(self.var("get", "c", code=FAILURE),
                         "^cairn var: .*no variable 'c' on the servers; they have a, b\n$")

    def test_a_value_of_another_shape_is_refused_and_changes_nothing(self):
        self.shared_variables()
        self.assertRegex(self.var("set", "a", "1,2", code=FAILURE), r"'a' of shape \[\] takes 1 value, not 2")
        self.assertEqual(self.var("get", "a"), "3\n")

    def test_a_value_that_is_not_a_number_is_refused(self):
        self.assertEqual(self.var("set", "a", "ten", code=USAGE), "cairn var: 'ten' is not a number\n")

    def test_the_server_runs_until_it_is_stopped(self):
        self.shared_variables()
        self.assertTrue(self.server.running)
        self.server.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, self.server)


class VariablesOfSeveralServersTest(IntegrationTest):

    def test_new_variables_go_to_the_server_with_the_fewest_bytes(self):
        cluster = Cluster(self, ps=2, workers=1)
        tasks = [cluster.start("ps", index) for index in (0, 1)]
        where, _ = cluster.by_file("ps", 0)
        for name, value in (("big", "1,2,3,4"), ("small", "5"), ("smaller", "6")):
            self.assert_exit(DONE, self.run_to_end("cairn", "var", "set", name, value, *where))
        listed = self.run_to_end("cairn", "var", "list", *where)
        self.assertEqual(listed.stdout, "big\t[4]\tps/0\nsmall\t[]\tps/1\nsmaller\t[]\tps/1\n")
        self.assertTrue(all(task.running for task in tasks))

    def test_an_unreachable_server_is_named_and_the_exit_code_is_retryable(self):
        cluster = Cluster(self, ps=1, workers=0)
        address = cluster.addresses["ps"][0]
        program = self.run_to_end("cairn", "var", "list", f"--ps_hosts={address}", "--timeout=1")
        self.assert_exit(RETRYABLE, program)
        self.assertIn(f"ps/0 at {address}: connection refused", program.stderr)


if __name__ == "__main__":
    main()
