// Reads event files for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cairn/tensorboard/v1/event.pb.h"
#include "common/core/files.h"
#include "data/tf_record/tf_record.h"

namespace cairn::worker {

// A directory for one test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "cairn_board_XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The paths of all files in `directory`, without subdirectories, sorted by name.
inline std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// All events of all files in the directory, in the order written.
inline std::vector<tensorboard::v1::Event> EventsIn(const std::string& directory) {
  std::vector<tensorboard::v1::Event> events;
  for (const std::string& path : FilesIn(directory)) {
    const std::string bytes = ReadFile(path).value();
    data::TfRecordReader reader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    for (auto record = reader.Next(); record.ok() && record->has_value(); record = reader.Next()) {
      events.emplace_back();
      EXPECT_TRUE(events.back().ParseFromArray((*record)->data(), static_cast<int>((*record)->size())));
    }
  }
  return events;
}

// The steps of each scalar in the directory, in the order written: {"epoch_loss", {0, 1, 2}}.
inline std::map<std::string, std::vector<int64_t>> StepsIn(const std::string& directory) {
  std::map<std::string, std::vector<int64_t>> steps;
  for (const tensorboard::v1::Event& event : EventsIn(directory)) {
    for (const auto& value : event.summary().value()) steps[value.tag()].push_back(event.step());
  }
  return steps;
}

}  // namespace cairn::worker
