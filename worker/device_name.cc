#include "worker/device_name.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn::worker {
namespace {

absl::Status NoDeviceName(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no device: expected auto, /cpu:0, /gpu:0 or /job:worker/task:0/device:GPU:0"));
}

bool ParseIndex(absl::string_view text, std::optional<int>& index) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return false;
  index = value;
  return true;
}

// "gpu", "gpu:0" or, with all of its name, "device:gpu:0".
bool ParseKind(const std::vector<std::string>& words, size_t first, DeviceName& name) {
  if (first >= words.size() || words.size() > first + 2) return false;
  name.gpu = words[first] == "gpu";
  if (!name.gpu && words[first] != "cpu") return false;
  return words.size() == first + 1 || ParseIndex(words[first + 1], name.index);
}

bool ParsePart(absl::string_view part, DeviceName& name, bool& complete) {
  const std::vector<std::string> words = absl::StrSplit(part, ':');
  if (complete) return false;
  std::optional<int> replica;  // TensorFlow's, which is 0 always
  if (words[0] == "job" && words.size() == 2) {
    name.job = words[1];
    return !name.job.empty();
  }
  if (words[0] == "task" && words.size() == 2) return ParseIndex(words[1], name.task);
  if (words[0] == "replica" && words.size() == 2) return ParseIndex(words[1], replica);
  complete = true;
  return ParseKind(words, words[0] == "device" ? 1 : 0, name);
}

}  // namespace

absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text) {
  DeviceName name;
  const std::string lower = absl::AsciiStrToLower(text);
  absl::string_view rest = lower;
  absl::ConsumePrefix(&rest, "/");
  bool complete = false;
  for (const absl::string_view part : absl::StrSplit(rest, '/')) {
    if (!ParsePart(part, name, complete)) return NoDeviceName(text);
  }
  if (!complete) return NoDeviceName(text);
  return name;
}

}  // namespace cairn::worker
