#include "worker/checkpoint/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/checkpoint/small_job.h"

namespace cairn::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using CheckpointTest = CheckpointFiles;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST_F(CheckpointTest, LoadsTheSameBitsForAnyNumberOfServers) {
  for (int servers = 1; servers <= 5; ++servers) {
    const std::string directory = Write(servers);
    const auto checkpoint = Checkpoint::Open(directory);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE(checkpoint->Verify().ok());
    const auto loaded = Load(*checkpoint);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(SameBits(*loaded, whole_)) << servers << " servers";
  }
}

TEST_F(CheckpointTest, RunStateAndModelAreRestored) {
  const std::string directory = Write();
  EXPECT_EQ(directory, train_dir_ + "/checkpoints/step-00001000");
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->run(), run_);
  EXPECT_EQ(checkpoint->model_json(), kModel);

  run_ = RunState();
  run_.slots = {"m", "v"};
  run_.hyperparameters["x"] = std::numeric_limits<double>::quiet_NaN();
  const auto bare = Checkpoint::Open(Write());
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->run().learning_rate, std::nullopt);
  EXPECT_TRUE(std::isnan(bare->run().hyperparameters.at("x")));
}

TEST_F(CheckpointTest, VariablesPrecedeTheSlots) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<std::string> names;
  for (const TensorInfo& tensor : checkpoint->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("dense/bias", "dense/kernel", "none", "scale", "slot/m/dense/bias",
                                 "slot/m/dense/kernel", "slot/m/none", "slot/m/scale", "slot/v/dense/bias",
                                 "slot/v/dense/kernel", "slot/v/none", "slot/v/scale"));
  EXPECT_EQ(checkpoint->tensors()[5].variable, "dense/kernel");
  EXPECT_EQ(checkpoint->tensors()[5].slot, "m");
  EXPECT_EQ(checkpoint->tensors()[5].shape, Shape({6, 2}));
}

// torch/distributed/checkpoint/hf_storage.py expects every tensor of a file in the sharding info, a string.
TEST_F(CheckpointTest, EachFileHasTheRowOffsetsForPyTorch) {
  const std::string directory = Write(2);
  std::vector<int64_t> begins;
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const FileEntry& entry : checkpoint->files()) {
    const std::string file = *ReadFile(directory + "/" + entry.name);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    auto header = nlohmann::json::parse(file.substr(8, length));
    const auto info = nlohmann::json::parse(header["__metadata__"]["DCP_SHARDING_INFO"].get<std::string>());
    EXPECT_EQ(header["__metadata__"]["format"], "pt");
    header.erase("__metadata__");
    EXPECT_EQ(info.size(), header.size());
    for (const auto& [name, tensor] : header.items()) {
      EXPECT_EQ(info.at(name).at("saved_offsets").size(), tensor.at("shape").size()) << name;
    }
    const auto& offsets = info.at("slot/v/dense/kernel").at("saved_offsets");
    EXPECT_EQ(offsets.at(1), 0);
    begins.push_back(offsets.at(0));
    EXPECT_EQ(header.at("slot/v/dense/kernel").at("shape"), nlohmann::json({3, 2}));
  }
  EXPECT_THAT(begins, testing::UnorderedElementsAre(0, 3));
}

TEST_F(CheckpointTest, EachRunOfRowsOnOneServerHasItsOwnFile) {
  const auto slice = [](size_t variable, int64_t begin, int64_t end, int64_t offset) {
    return net::Slice{Variables()[variable].name, Variables()[variable].shape, begin, end, offset};
  };
  const Servers servers({{slice(0, 0, 1, 0), slice(0, 4, 6, 5), slice(1, 0, 2, 9)},
                         {slice(0, 1, 4, 0), slice(2, 0, 1, 6), slice(3, 0, 0, 7)}},
                        whole_);
  const auto path = WriteCheckpoint(train_dir_, run_, kModel, servers.states(), {});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(Checkpoint::Open(*path)->files().size(), 3u);
  const auto loaded = OpenAndLoad(*path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(SameBits(*loaded, whole_));
}

TEST_F(CheckpointTest, InconsistentServersAreNotWritten) {
  const auto kernel = [](int64_t begin, int64_t end, Shape shape = {6, 2}) {
    return net::Slice{"dense/kernel", shape, begin, end, 0};
  };
  using Slices = std::vector<std::vector<net::Slice>>;
  const auto refused = [&](const Slices& slices) {
    const Servers servers(slices, whole_);
    return WriteCheckpoint(train_dir_, run_, kModel, servers.states(), {}).status();
  };
  for (const auto& [slices, what] : std::vector<std::pair<Slices, const char*>>{
           {{{kernel(0, 2)}, {kernel(3, 6)}}, "rows 2 to 3 are missing"},
           {{{kernel(0, 2)}, {kernel(2, 5)}}, "rows 5 to 6 are missing"},
           {{{kernel(0, 4)}, {kernel(3, 6)}}, "rows 3 to 4 are there twice"},
           {{{kernel(0, 6)}, {kernel(0, 6)}}, "rows 0 to 6 are there twice"},
           {{{kernel(0, 3)}, {kernel(3, 6, {6, 1})}}, "shape [6,1]"}}) {
    const absl::Status status = refused(slices);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("tensor 'dense/kernel'"), HasSubstr(what)));
  }
  EXPECT_FALSE(FileExists(train_dir_)) << "nothing was written";
}

TEST_F(CheckpointTest, InvalidNamesAndSlicesAreNotWritten) {
  const std::vector<float> state(3 * 12);
  const auto refused = [&](const net::Slice& slice) {
    const auto status = WriteCheckpoint(train_dir_, run_, kModel, {{{slice}, state}}, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return MessageOf(status);
  };
  EXPECT_THAT(refused({"k", {6, 2}, 0, 6, 1}),
              HasSubstr("12 elements from offset 1 do not fit into the server's 12"));
  EXPECT_THAT(refused({"k", {6, 2}, 0, 6, -1}), HasSubstr("from offset -1"));
  EXPECT_THAT(refused({"k", {6, 2}, 0, 7, 0}), HasSubstr("rows 0 to 7 of shape [6,2]"));
  EXPECT_THAT(refused({"slot/m/k", {6, 2}, 0, 6, 0}), HasSubstr("the name of a slot"));
  EXPECT_THAT(refused({"__metadata__", {6, 2}, 0, 6, 0}), HasSubstr("the name is taken"));
  EXPECT_THAT(refused({"\xff", {6, 2}, 0, 6, 0}), HasSubstr("not UTF-8"));
  run_.slots = {"m", "a/b"};
  EXPECT_THAT(refused({"k", {6, 2}, 0, 6, 0}), HasSubstr("invalid slot names: m, a/b"));
  run_.slots = {"m"};
  const std::vector<float> odd(3);
  EXPECT_THAT(MessageOf(WriteCheckpoint(train_dir_, run_, kModel, {{{}, odd}}, {}).status()),
              HasSubstr("ps/0: 3 values do not divide into an arena and 1 slots"));
}

TEST_F(CheckpointTest, DifferentModelOrOptimizerIsRefusedWithBothValues) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<float> values(100);
  const auto refused = [&](const net::VariableInfo& variable, const std::vector<std::string>& slots) {
    const std::vector<absl::Span<float>> into(1 + slots.size(), absl::MakeSpan(values));
    const absl::Status status = checkpoint->Load({variable}, slots, into);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return MessageOf(status);
  };
  EXPECT_THAT(refused({"dense/kernel", {5, 2}, 0}, {}),
              HasSubstr("tensor 'dense/kernel' has shape [6,2] in it and [5,2] here"));
  EXPECT_THAT(refused({"conv/kernel", {5, 2}, 0}, {}), HasSubstr("tensor 'conv/kernel' is not in it"));
  EXPECT_THAT(refused({"dense/bias", {2}, 0}, {"momentum"}),
              HasSubstr("tensor 'slot/momentum/dense/bias' is not in it; it was written by Adam with 2 slots "
                        "(m, v)"));
}

TEST_F(CheckpointTest, TensorsThatTheModelLacksAreIgnored) {
  const auto checkpoint = Checkpoint::Open(Write());
  std::vector<float> values(5, -1), slot(5, -1);
  ASSERT_TRUE(checkpoint
                  ->Load({{"dense/bias", {2}, 3}, {"scale", {}, 0}}, {"v"},
                         {absl::MakeSpan(values), absl::MakeSpan(slot)})
                  .ok());
  EXPECT_THAT(values, ElementsAre(15, -1, -1, 13, 14));
  EXPECT_THAT(slot, ElementsAre(215, -1, -1, 213, 214));
}

TEST_F(CheckpointTest, MissingRowsAreFoundOnLoad) {
  const std::string directory = Write(1);
  const auto rows = [](int shape, int begin, int end) {
    return absl::StrCat("[\n      ", shape, ",\n      2\n     ],\n     \"row_begin\": ", begin,
                        ",\n     \"row_end\": ", end);
  };
  Forge(directory, rows(6, 0, 6), rows(8, 2, 8));
  const auto checkpoint = Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(checkpoint->Verify()));
  std::vector<float> values(16);
  const absl::Status status = checkpoint->Load({{"dense/kernel", {8, 2}, 0}}, {}, {absl::MakeSpan(values)});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("tensor 'dense/kernel' of shape [8,2]: rows 0 to 2 are missing"));
}

// A limit on the size of files acts like a full disk.
TEST_F(CheckpointTest, FullDiskPreservesExistingCheckpoints) {
  WriteStep(1);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {rlim_t{10}, rlim_t{700}}) {
    const rlimit full = {limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    run_.global_step = 2;
    const Servers job(2, whole_);
    const auto written = WriteCheckpoint(train_dir_, run_, kModel, job.states(), {.max_to_keep = 1});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(written.ok());
    EXPECT_THAT(MessageOf(written.status()),
                AllOf(HasSubstr("cannot write " + train_dir_), HasSubstr("large")));
    EXPECT_THAT(Steps(), ElementsAre("step-00000001"));
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(OpenAndLoad(train_dir_ + "/checkpoints/step-00000001").ok());
}

TEST_F(CheckpointTest, JobWithoutVariablesHasACheckpoint) {
  run_.slots = {};
  const auto path = WriteCheckpoint(train_dir_, run_, "", {{}, {}}, {});
  ASSERT_TRUE(path.ok()) << path.status();
  const auto checkpoint = Checkpoint::Open(*path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_TRUE(checkpoint->Verify().ok());
}

}  // namespace
}  // namespace cairn::worker
