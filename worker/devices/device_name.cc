#include "worker/devices/device_name.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

bool IsWord(absl::string_view text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

// Reads one name, part by part.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<DeviceName> Parse() {
    absl::string_view rest = text_;
    absl::ConsumePrefix(&rest, "/");
    if (rest.empty()) return DeviceName();
    for (const absl::string_view part : absl::StrSplit(rest, '/')) CAIRN_RETURN_IF_ERROR(ParsePart(part));
    return std::move(name_);
  }

 private:
  absl::Status Wrong(absl::string_view part, absl::string_view why) const {
    const std::string what =
        part.empty() ? std::string("an empty part") : absl::StrCat("its part '", part, "' ", why);
    return absl::InvalidArgumentError(
        absl::StrCat("'", text_, "' is not a device: ", what,
                     "; expected a name such as /cpu:0, /gpu:0 or /job:worker/task:0/device:GPU:0"));
  }

  absl::Status ParsePart(absl::string_view part) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, ':');
    const absl::string_view key = words[0];
    const std::string lower = absl::AsciiStrToLower(key);
    if (lower == "job" || lower == "replica" || lower == "task") {
      if (words.size() != 2)
        return Wrong(part, absl::StrCat("is not ", lower, ":", lower == "job" ? "NAME" : "N"));
      if (lower == "job") return ParseJob(part, words[1]);
      return lower == "replica" ? ParseNumber(part, words[1], said_replica_, name_.replica)
                                : ParseNumber(part, words[1], said_task_, name_.task);
    }
    if (lower == "device") {
      if (words.size() < 2 || words.size() > 3) return Wrong(part, "is not device:TYPE or device:TYPE:N");
      return ParseType(part, words[1], words.size() == 3 ? words[2] : "*");
    }
    if (lower == "cpu" || lower == "gpu") {
      if (words.size() > 2) return Wrong(part, absl::StrCat("is not ", lower, ":N"));
      return ParseType(part, key, words.size() == 2 ? words[1] : "*");
    }
    return Wrong(part, "is none of job:, replica:, task:, device:, cpu: and gpu:");
  }

  absl::Status ParseJob(absl::string_view part, absl::string_view job) {
    if (std::exchange(said_job_, true)) return Wrong(part, "repeats the job");
    if (job == "*") return absl::OkStatus();
    if (!IsWord(job)) return Wrong(part, "has no job name: letters, digits and _, a letter first");
    name_.job = std::string(job);
    return absl::OkStatus();
  }

  absl::Status ParseType(absl::string_view part, absl::string_view type, absl::string_view index) {
    if (said_type_) return Wrong(part, "repeats the type");
    said_type_ = true;
    if (type != "*") {
      if (!IsWord(type)) return Wrong(part, "has no type such as CPU or GPU");
      name_.type = absl::AsciiStrToUpper(type);
    }
    bool said_index = false;
    return ParseNumber(part, index, said_index, name_.index);
  }

  absl::Status ParseNumber(absl::string_view part, absl::string_view text, bool& said,
                           std::optional<int>& number) {
    if (std::exchange(said, true)) return Wrong(part, "repeats the number");
    if (text == "*") return absl::OkStatus();
    int value = 0;
    const bool digits = std::all_of(
        text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
    if (!digits || !absl::SimpleAtoi(text, &value)) return Wrong(part, "has no number from 0 to 2147483647");
    number = value;
    return absl::OkStatus();
  }

  const absl::string_view text_;
  DeviceName name_;
  bool said_job_ = false, said_replica_ = false, said_task_ = false, said_type_ = false;
};

template <typename T>
bool Disagree(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() && b.has_value() && *a != *b;
}

template <typename T>
bool Said(const std::optional<T>& pattern, const std::optional<T>& name) {
  return !pattern.has_value() || pattern == name;
}

template <typename T>
std::optional<T> FirstOf(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() ? a : b;
}

}  // namespace

std::string DeviceName::ToString() const {
  std::string text;
  if (job.has_value()) absl::StrAppend(&text, "/job:", *job);
  if (replica.has_value()) absl::StrAppend(&text, "/replica:", *replica);
  if (task.has_value()) absl::StrAppend(&text, "/task:", *task);
  if (type.has_value() || index.has_value()) {
    absl::StrAppend(&text, "/device:", type.value_or("*"), ":");
    absl::StrAppend(&text, index.has_value() ? absl::StrCat(*index) : "*");
  }
  return text;
}

std::string DeviceName::ShortName() const {
  return absl::StrCat("/", absl::AsciiStrToLower(type.value_or("*")), ":",
                      index.has_value() ? absl::StrCat(*index) : "*");
}

absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text) {
  return Parser(text).Parse();
}

absl::StatusOr<DeviceName> MergeDeviceNames(const DeviceName& name, const DeviceName& other,
                                            bool allow_soft_placement) {
  const auto incompatible = [&](absl::string_view parts) {
    return absl::InvalidArgumentError(absl::StrCat("Cannot merge devices with incompatible ", parts, ": '",
                                                   name.ToString(), "' and '", other.ToString(), "'"));
  };
  if (Disagree(name.job, other.job)) return incompatible("jobs");
  if (Disagree(name.replica, other.replica)) return incompatible("replicas");
  if (Disagree(name.task, other.task)) return incompatible("tasks");
  DeviceName merged = {.job = FirstOf(name.job, other.job),
                       .replica = FirstOf(name.replica, other.replica),
                       .task = FirstOf(name.task, other.task)};
  if (Disagree(name.type, other.type)) {
    if (!allow_soft_placement) return incompatible("types");
    return merged;  // the index also stays open, since it has a meaning only for one type
  }
  merged.type = FirstOf(name.type, other.type);
  if (Disagree(name.index, other.index)) {
    if (!allow_soft_placement) return incompatible("ids");
    return merged;
  }
  merged.index = FirstOf(name.index, other.index);
  return merged;
}

DeviceName OverrideDeviceName(const DeviceName& base, const DeviceName& name) {
  DeviceName result = {.job = FirstOf(name.job, base.job),
                       .replica = FirstOf(name.replica, base.replica),
                       .task = FirstOf(name.task, base.task),
                       .type = FirstOf(name.type, base.type),
                       .index = name.index};
  if (!result.index.has_value() && !Disagree(name.type, base.type)) result.index = base.index;
  return result;
}

absl::StatusOr<std::string> CanonicalDeviceName(absl::string_view text, absl::string_view basename) {
  CAIRN_ASSIGN_OR_RETURN(const DeviceName base, ParseDeviceName(basename));
  if (!base.complete()) {
    return absl::InvalidArgumentError(absl::StrCat("Basename: ", basename, " should be fully specified."));
  }
  CAIRN_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(text));
  const DeviceName canonical = {.job = FirstOf(name.job, base.job),
                                .replica = FirstOf(name.replica, base.replica),
                                .task = FirstOf(name.task, base.task),
                                .type = FirstOf(name.type, base.type),
                                .index = FirstOf(name.index, base.index)};
  return canonical.ToString();
}

bool Matches(const DeviceName& pattern, const DeviceName& name) {
  return Said(pattern.job, name.job) && Said(pattern.replica, name.replica) &&
         Said(pattern.task, name.task) && Said(pattern.type, name.type) && Said(pattern.index, name.index);
}

bool Compatible(const DeviceName& a, const DeviceName& b) {
  return !Disagree(a.job, b.job) && !Disagree(a.replica, b.replica) && !Disagree(a.task, b.task) &&
         !Disagree(a.type, b.type) && !Disagree(a.index, b.index);
}

}  // namespace cairn::worker
