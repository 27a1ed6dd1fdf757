#include "tests/guard/include_walls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/source_dir.h"

namespace cairn::guard {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<Violation> Check(absl::string_view path, absl::string_view include) {
  return CheckFile(path, absl::StrCat("#include ", include, "\n"));
}

TEST(IncludeWalls, NoIncludeOfThisTreeCrossesOne) {
  const TreeReport report = CheckTree(InSource());
  EXPECT_GT(report.files, 20) << "the walk went wrong: there are more sources than that";
  for (const Violation& violation : report.violations) ADD_FAILURE() << violation.ToString();
}

TEST(IncludeWalls, APlantedCrossingIsFoundInATree) {
  std::string root = testing::TempDir() + "cairn_walls_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  std::filesystem::create_directories(root + "/ps/policy");
  std::ofstream(root + "/ps/policy/sync.cc") << "// a policy\n\n#include \"nn/model.h\"\n";
  const TreeReport report = CheckTree(root);
  std::filesystem::remove_all(root);
  ASSERT_THAT(report.violations, SizeIs(1));
  EXPECT_EQ(report.files, 1);
  EXPECT_EQ(report.violations[0].ToString(),
            "ps/policy/sync.cc:3: \"nn/model.h\": ps/policy may include only common/core, "
            "optim/store/group_settings.h, proto, ps/policy");
}

TEST(IncludeWalls, NoFoldersOfThisTreeIncludeEachOtherInACircle) {
  EXPECT_THAT(FolderCycles(InSource()), IsEmpty());
}

TEST(IncludeWalls, APlantedCircleIsFound) {
  std::string root = testing::TempDir() + "cairn_circle_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  for (const char* folder : {"/nn/layers", "/data"}) std::filesystem::create_directories(root + folder);
  std::ofstream(root + "/nn/model.h") << "#include \"nn/layers/dense.h\"\n#include \"data/array.h\"\n";
  std::ofstream(root + "/nn/layers/dense.h") << "  # include \"nn/model.h\"\n";
  std::ofstream(root + "/data/array.h") << "#include <vector>\n";
  const std::vector<std::string> cycles = FolderCycles(root);
  std::filesystem::remove_all(root);
  EXPECT_THAT(cycles, testing::ElementsAre("nn -> nn/layers", "nn/layers -> nn"));
}

TEST(IncludeWalls, EveryWallHolds) {
  const std::vector<std::pair<const char*, const char*>> crossings = {
      {"common/core/a.h", "\"common/net/cluster/cluster_spec.h\""},
      {"common/core/a.h", "<grpcpp/grpcpp.h>"},
      {"common/core/a.h", "\"proto/cluster.pb.h\""},
      {"common/core/a.h", "<google/protobuf/message.h>"},
      {"common/core/a.h", "<cuda_runtime.h>"},
      {"common/net/a.h", "\"ps/shard/shard.h\""},
      {"common/net/a.h", "\"kernels/device.h\""},
      {"kernels/a.h", "\"common/net/retry.h\""},
      {"kernels/cuda/a.cu", "<grpcpp/grpcpp.h>"},
      {"kernels/cpu/a.cc", "<cublas_v2.h>"},
      {"kernels/a.h", "\"nn/layer/layer.h\""},
      {"ps/task/ps_main.cc", "\"kernels/device.h\""},
      {"ps/a.cc", "\"worker/options/options.h\""},
      {"ps/a.cc", "\"cli/launcher/ports.h\""},
      {"ps/log/a.cc", "\"ps/shard/shard.h\""},
      {"ps/log/a.cc", "\"ps/replication/replicator.h\""},
      {"ps/shard/a.cc", "\"ps/replication/replicator.h\""},
      {"ps/shard/a.cc", "\"ps/job/server.h\""},
      {"ps/members/a.cc", "\"ps/job/server.h\""},
      {"ps/job/a.cc", "\"ps/rpc/service.h\""},
      {"ps/policy/a.cc", "\"ps/log/sequencer.h\""},
      {"embedding/optimizers/a.cc", "\"optim/store/variable_store.h\""},
      {"embedding/store/a.cc", "\"kernels/device.h\""},
      {"embedding/store/a.h", "\"optim/store/memory_budget.h\""},
      {"embedding/store/a.h", "\"common/net/retry.h\""},
      {"data/a.cc", "\"nn/model.h\""},
      {"data/a.cc", "\"cluster.pb.h\""},
      {"nn/a.cc", "\"common/net/retry.h\""},
      {"nn/a.cc", "\"data/dataset.h\""},
      {"worker/tensorboard/a.cc", "\"client/client.h\""},
      {"worker/tensorboard/a.cc", "\"kernels/device.h\""},
      {"worker/checkpoint/a.cc", "\"kernels/device.h\""},
      {"worker/checkpoint/a.cc", "\"nn/model.h\""},
      {"client/a.cc", "\"kernels/device.h\""},
      {"include/cairn/a.h", "\"client/client.h\""},
      {"include/cairn/a.h", "\"absl/status/status.h\""},
      {"include/cairn/a.h", "<absl/status/status.h>"},
      {"include/cairn/a.h", "\"cairn/v1/job.pb.h\""},
      {"api/a.cc", "\"ps/job/server.h\""},
      {"api/a.cc", "\"worker/training/trainer.h\""},
      {"client/a.cc", "\"worker/training/trainer.h\""},
      {"worker/allreduce/a.cc", "\"ps/shard/shard.h\""},
      {"worker/allreduce/a.cc", "\"worker/training/trainer.h\""},
      {"worker/split/a.cc", "\"worker/allreduce/ring.h\""},
      {"worker/split/a.cc", "\"client/client.h\""},
      {"worker/training/trainer.cc", "\"ps/shard/shard.h\""},
      {"worker/training/trainer.cc", "\"optim/apply.h\""},
      {"worker/training/trainer.cc", "<cudnn.h>"},
      {"worker/training/trainer.cc", "\"cli/launcher/ports.h\""},
      {"cli/commands/train_command.cc", "\"ps/job/server.h\""},
      {"cli/commands/train_command.cc", "\"tests/support/fake_clock.h\""},
      {"cli/a.cc", "\"../ps/server.h\""},
      {"cli/a.cc", "\"ports.h\""},
  };
  for (const auto& [path, include] : crossings)
    EXPECT_THAT(Check(path, include), SizeIs(1)) << path << " " << include;
}

TEST(IncludeWalls, AllowedIncludesPass) {
  const std::vector<std::pair<const char*, const char*>> fine = {
      {"common/core/a.cc", "\"common/core/a.h\""},
      {"common/core/a.cc", "<nlohmann/json.hpp>"},
      {"common/net/a.cc", "\"proto/cluster.pb.h\""},
      {"common/net/a.cc", "<grpcpp/grpcpp.h>"},
      {"kernels/cuda/a.cu", "<cuda_runtime.h>"},
      {"kernels/cuda/a.cu", "\"cudnn.h\""},
      {"kernels/cpu/a.cc", "<dnnl.hpp>"},
      {"ps/rpc/service.cc", "\"ps/shard/shard.h\""},
      {"nn/a.cc", "\"kernels/ops.h\""},
      {"client/a.cc", "\"common/net/retry.h\""},
      {"include/cairn/a.h", "\"cairn/status.h\""},
      {"include/cairn/a.h", "<string>"},
      {"api/a.cc", "\"worker/checkpoint/checkpoint.h\""},
      {"worker/allreduce/a.cc", "\"optim/apply.h\""},
      {"worker/allreduce/a.cc", "\"optim/store/variable_store.h\""},
      {"worker/split/a.cc", "\"worker/peer/link.h\""},
      {"worker/split/a.cc", "\"nn/pipeline/pipeline.h\""},
      {"worker/training/trainer.cc", "\"client/a.h\""},
      {"cli/a.cc", "\"worker/options/options.h\""},
      {"tests/integration/a.cc", "\"ps/shard/shard.h\""},
      {"ps/a.cc", "\"absl/strings/str_cat.h\""},
  };
  for (const auto& [path, include] : fine)
    EXPECT_THAT(Check(path, include), IsEmpty()) << path << " " << include;
}

TEST(IncludeWalls, SpacesDoNotHideAnInclude) {
  EXPECT_THAT(CheckFile("ps/a.cc", "  #  include   \"worker/options/options.h\"  // why not\n"), SizeIs(1));
  EXPECT_THAT(CheckFile("ps/a.cc", "// #include \"worker/options/options.h\"\n"), IsEmpty());
}

}  // namespace
}  // namespace cairn::guard
