// A job with four small variables and two slots on any number of servers, and a directory for its
// checkpoints.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/files.h"
#include "common/net/cluster/placement.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/writer.h"

namespace cairn::worker {

inline const std::vector<net::VariableInfo>& Variables() {
  static const auto* const variables = new std::vector<net::VariableInfo>{
      {"dense/kernel", {6, 2}, 0}, {"dense/bias", {2}, 12}, {"scale", {}, 14}, {"none", {0, 3}, 15}};
  return *variables;
}
inline constexpr size_t kElements = 15;
inline constexpr size_t kParts = 3;  // values, and two slots

using Whole = std::vector<std::vector<float>>;  // [part][element], in the model's order

// All elements differ. A NaN with a payload and a negative zero check that every bit is kept.
inline Whole WholeState() {
  Whole whole(kParts, std::vector<float>(kElements));
  for (size_t part = 0; part < kParts; ++part) {
    for (size_t i = 0; i < kElements; ++i) whole[part][i] = static_cast<float>(100 * part + i + 1);
  }
  const uint32_t nan = 0x7fc12345;
  std::memcpy(&whole[0][3], &nan, sizeof(nan));
  whole[1][4] = -0.0f;
  return whole;
}

inline bool SameBits(const Whole& a, const Whole& b) {
  if (a.size() != b.size()) return false;
  for (size_t part = 0; part < a.size(); ++part) {
    if (a[part].size() != b[part].size() ||
        std::memcmp(a[part].data(), b[part].data(), a[part].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// The state of servers with `slices` [server] if the whole state is `whole`.
class Servers {
 public:
  Servers(std::vector<std::vector<net::Slice>> slices, const Whole& whole) : slices_(std::move(slices)) {
    for (const auto& of_server : slices_) {
      int64_t arena = 0;
      for (const net::Slice& slice : of_server) arena = std::max(arena, slice.offset + slice.elements());
      std::vector<float>& state = states_.emplace_back();
      for (const auto& part : whole) {
        std::vector<float> values(static_cast<size_t>(arena));
        for (const net::Slice& slice : of_server) {
          for (const net::VariableInfo& variable : Variables()) {
            if (variable.name != slice.name) continue;
            const int64_t from = variable.offset + slice.row_begin * slice.shape.row_elements();
            std::copy_n(part.begin() + from, slice.elements(), values.begin() + slice.offset);
          }
        }
        state.insert(state.end(), values.begin(), values.end());
      }
    }
  }
  // Places variables as a chief does, and splits those above 16 bytes.
  Servers(int count, const Whole& whole)
      : Servers(net::PlaceVariables(Variables(), {.servers = count, .split_bytes = 16}), whole) {}

  std::vector<ServerState> states() const {
    std::vector<ServerState> states;
    for (size_t i = 0; i < slices_.size(); ++i) states.push_back({slices_[i], states_[i]});
    return states;
  }

 private:
  std::vector<std::vector<net::Slice>> slices_;
  std::vector<std::vector<float>> states_;
};

class CheckpointFiles : public testing::Test {
 protected:
  CheckpointFiles() {
    static int count = 0;
    train_dir_ = absl::StrCat(testing::TempDir(), "cairn_checkpoint_", getpid(), "_", ++count);
    run_.global_step = 1000;
    run_.mode = "async";
    run_.run_id = "run \"7\"";
    run_.model_sha256 = "abc";
    run_.optimizer = "Adam";
    run_.hyperparameters = {{"learning_rate", 0.1}, {"clip", std::numeric_limits<double>::infinity()}};
    run_.slots = {"m", "v"};
    run_.learning_rate = 0.1f;
    run_.seed = std::numeric_limits<uint64_t>::max();
    run_.batch_size = 64;
    run_.num_workers = 2;
    run_.final_version = 5000;
    run_.epochs = 3;
    run_.positions = {501, 499};
    run_.data = DataState{.num_examples = 60, .next = 90, .open = {10, 5, 70, 1}, .missed = 2, .repeated = 3};
    run_.examples = 64000;
    run_.accepted = 1000;
    run_.stale = 2;
    run_.duplicate = 1;
    run_.rejected = 3;
    run_.staleness_max = 2;
    run_.staleness_histogram = {900, 90, 10};
    run_.saved_at = 1234567890.125;
  }
  ~CheckpointFiles() override { std::filesystem::remove_all(train_dir_); }

  std::string Write(int servers = 2, int64_t max_to_keep = 0) {
    const Servers job(servers, whole_);
    const auto path = WriteCheckpoint(train_dir_, run_, kModel, job.states(), {.max_to_keep = max_to_keep});
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }
  std::string WriteStep(int64_t step, int64_t max_to_keep = 0) {
    run_.global_step = step;
    return Write(2, max_to_keep);
  }

  static absl::StatusOr<Whole> Load(const Checkpoint& checkpoint) {
    Whole whole(kParts, std::vector<float>(kElements, -1));
    std::vector<absl::Span<float>> into;
    for (auto& part : whole) into.push_back(absl::MakeSpan(part));
    const absl::Status status = checkpoint.Load(Variables(), {"m", "v"}, into);
    if (!status.ok()) return status;
    return whole;
  }
  static absl::StatusOr<Whole> OpenAndLoad(const std::string& directory) {
    auto checkpoint = Checkpoint::Open(directory);
    if (!checkpoint.ok()) return checkpoint.status();
    return Load(*checkpoint);
  }

  static std::vector<std::string> NamesIn(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> Steps() const { return NamesIn(train_dir_ + "/checkpoints"); }

  static void Put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Changes state.json and updates the checksum in its last line.
  static void Forge(const std::string& directory, const std::string& from, const std::string& to) {
    std::string text = *ReadFile(directory + "/state.json");
    const size_t found = text.find(from);
    ASSERT_NE(found, std::string::npos) << from;
    text.replace(found, from.size(), to);
    text.resize(text.rfind(",\n \"crc32\": \""));
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
    Put(directory + "/state.json", text + absl::StrFormat(",\n \"crc32\": \"%08x\"\n}\n", crc));
  }

  static constexpr char kModel[] = "{\"class_name\": \"Sequential\"}\n";
  static constexpr char kFirstFile[] = "shard-00001-model-00001-of-00001.safetensors";
  std::string train_dir_;
  RunState run_;
  const Whole whole_ = WholeState();
};

}  // namespace cairn::worker
