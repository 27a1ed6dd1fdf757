// How a task of cairn-ps ends without a job. Whole runs are in tests/integration.
#include "ps/task/ps_task.h"

#include <gtest/gtest.h>

#include <csignal>

namespace cairn::ps {
namespace {

class PsTaskTest : public testing::Test {
 protected:
  PsTaskTest() {
    EXPECT_TRUE(cluster_.spec.Add({"ps", 0}, {"127.0.0.1", 1}).ok());
    EXPECT_TRUE(cluster_.spec.Add({"worker", 0}, {"127.0.0.1", 2}).ok());
    cluster_.self = {"ps", 0};
    options_.listen = "127.0.0.1:0";
    options_.memory_limit = "64MB";
  }
  ExitCode Run() { return PsTask(options_, cluster_, signals_).Run(); }

  PsOptions options_;

 private:
  SignalQueue signals_{SIGTERM};
  net::ResolvedCluster cluster_;
};

TEST_F(PsTaskTest, ServesUntilASignalArrives) {
  raise(SIGTERM);
  EXPECT_EQ(Run(), ExitCode::kTerminated);
}

TEST_F(PsTaskTest, AnAddressOfAnotherMachineIsAUsageError) {
  options_.listen = "192.0.2.1:0";  // reserved for documentation
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

TEST_F(PsTaskTest, PagesOnAnotherMachineAreAUsageError) {
  options_.metrics.host = "192.0.2.1";
  options_.metrics.port = 0;
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

}  // namespace
}  // namespace cairn::ps
