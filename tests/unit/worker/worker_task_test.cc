// How a task that cannot train ends. Whole runs are in tests/integration.
#include "worker/task/worker_task.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "data/array/synthetic_mnist.h"
#include "tests/support/source_dir.h"

namespace cairn::worker {
namespace {

class WorkerTaskTest : public testing::Test {
 protected:
  WorkerTaskTest() {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    EXPECT_TRUE(data::WriteSyntheticMnist(directory_, 64, 32, 1).ok());
    options_.model = InSource("tests/support/data/keras316_mnist_cnn.json");
    options_.data.path = directory_;
    options_.devices.device = "/cpu:0";
    options_.connect_timeout_seconds = 0.2;
    // Nothing listens on port 1.
    EXPECT_TRUE(cluster_.spec.Add({"ps", 0}, {"127.0.0.1", 1}).ok());
    EXPECT_TRUE(cluster_.spec.Add({"worker", 0}, {"127.0.0.1", 2}).ok());
    cluster_.self = {"worker", 0};
  }
  ~WorkerTaskTest() override { std::filesystem::remove_all(directory_); }

  ExitCode Run() {
    WorkerTask task({.options = options_,
                     .cluster = cluster_,
                     .access = access_,
                     .listen = listen_,
                     .pages = pages_,
                     .traced = traced_,
                     .signals = signals_,
                     .faults = faults_});
    return task.Run();
  }

  std::string directory_ = testing::TempDir() + "worker_task_XXXXXX";
  TrainOptions options_;
  net::ResolvedCluster cluster_;

 private:
  const net::Access access_;
  const ListenFlags listen_;
  const monitor::MetricsFlags pages_;
  const TraceFlags traced_;
  SignalQueue signals_{SIGHUP};
  FaultPoints faults_{{}};
};

TEST_F(WorkerTaskTest, AMissingModelIsAUsageError) {
  options_.model = "/nonexistent/model.json";
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

TEST_F(WorkerTaskTest, MissingDataIsAUsageError) {
  options_.data.path = "/nonexistent";
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

TEST_F(WorkerTaskTest, AnUnknownDeviceIsAUsageError) {
  options_.devices.device = "/gpu:99";
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

TEST_F(WorkerTaskTest, ATrainDirThatCannotBeWrittenIsAUsageError) {
  options_.train_dir = "/proc/train";
  EXPECT_EQ(Run(), ExitCode::kUsage);
}

TEST_F(WorkerTaskTest, AServerThatCannotBeReachedIsRetryable) {
  EXPECT_EQ(Run(), ExitCode::kRetryable);
}

TEST_F(WorkerTaskTest, AnEvaluatorWithoutCheckpointsIsRetryable) {
  cluster_.self = {"evaluator", 0};
  options_.train_dir = directory_;
  options_.save_secs = 0;
  EXPECT_EQ(Run(), ExitCode::kRetryable);
}

}  // namespace
}  // namespace cairn::worker
