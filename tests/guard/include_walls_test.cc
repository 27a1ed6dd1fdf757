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
  std::ofstream(root + "/ps/policy/sync.cc") << "// a policy\n\n#include \"worker/nn/model.h\"\n";
  const TreeReport report = CheckTree(root);
  std::filesystem::remove_all(root);
  ASSERT_THAT(report.violations, SizeIs(1));
  EXPECT_EQ(report.files, 1);
  EXPECT_EQ(report.violations[0].ToString(),
            "ps/policy/sync.cc:3: \"worker/nn/model.h\": ps may include only common, proto, ps");
}

TEST(IncludeWalls, EveryWallHolds) {
  const std::vector<std::pair<const char*, const char*>> crossings = {
      {"common/core/a.h", "\"common/net/cluster_spec.h\""},
      {"common/core/a.h", "<grpcpp/grpcpp.h>"},
      {"common/core/a.h", "\"proto/cluster.pb.h\""},
      {"common/core/a.h", "<google/protobuf/message.h>"},
      {"common/core/a.h", "<cuda_runtime.h>"},
      {"common/net/a.h", "\"ps/shard.h\""},
      {"common/net/a.h", "\"kernels/device.h\""},
      {"kernels/a.h", "\"common/net/retry.h\""},
      {"kernels/cuda/a.cu", "<grpcpp/grpcpp.h>"},
      {"kernels/cpu/a.cc", "<cublas_v2.h>"},
      {"kernels/a.h", "\"worker/nn/layer.h\""},
      {"ps/ps_main.cc", "\"kernels/device.h\""},
      {"ps/a.cc", "\"worker/options.h\""},
      {"ps/a.cc", "\"cli/ports.h\""},
      {"worker/data/a.cc", "\"worker/nn/model.h\""},
      {"worker/data/a.cc", "\"cluster.pb.h\""},
      {"worker/nn/a.cc", "\"common/net/retry.h\""},
      {"worker/nn/a.cc", "\"worker/data/dataset.h\""},
      {"worker/tensorboard/a.cc", "\"worker/client/client.h\""},
      {"worker/tensorboard/a.cc", "\"kernels/device.h\""},
      {"worker/checkpoint/a.cc", "\"kernels/device.h\""},
      {"worker/checkpoint/a.cc", "\"worker/nn/model.h\""},
      {"worker/client/a.cc", "\"kernels/device.h\""},
      {"worker/client/a.cc", "\"worker/trainer.h\""},
      {"worker/allreduce/a.cc", "\"ps/shard.h\""},
      {"worker/allreduce/a.cc", "\"worker/trainer.h\""},
      {"worker/split/a.cc", "\"worker/allreduce/ring.h\""},
      {"worker/split/a.cc", "\"worker/client/client.h\""},
      {"worker/trainer.cc", "\"ps/shard.h\""},
      {"worker/trainer.cc", "\"ps/optim/apply.h\""},
      {"worker/trainer.cc", "<cudnn.h>"},
      {"worker/trainer.cc", "\"cli/ports.h\""},
      {"cli/train_command.cc", "\"ps/server.h\""},
      {"cli/train_command.cc", "\"tests/support/fake_clock.h\""},
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
      {"ps/service.cc", "\"ps/shard.h\""},
      {"worker/nn/a.cc", "\"kernels/ops.h\""},
      {"worker/client/a.cc", "\"common/net/retry.h\""},
      {"worker/allreduce/a.cc", "\"ps/optim/apply.h\""},
      {"worker/allreduce/a.cc", "\"ps/variable_store.h\""},
      {"worker/split/a.cc", "\"worker/allreduce/link.h\""},
      {"worker/split/a.cc", "\"worker/nn/pipeline.h\""},
      {"worker/trainer.cc", "\"worker/client/a.h\""},
      {"cli/a.cc", "\"worker/options.h\""},
      {"tests/integration/a.cc", "\"ps/shard.h\""},
      {"ps/a.cc", "\"absl/strings/str_cat.h\""},
  };
  for (const auto& [path, include] : fine)
    EXPECT_THAT(Check(path, include), IsEmpty()) << path << " " << include;
}

TEST(IncludeWalls, SpacesDoNotHideAnInclude) {
  EXPECT_THAT(CheckFile("ps/a.cc", "  #  include   \"worker/options.h\"  // why not\n"), SizeIs(1));
  EXPECT_THAT(CheckFile("ps/a.cc", "// #include \"worker/options.h\"\n"), IsEmpty());
}

}  // namespace
}  // namespace cairn::guard
