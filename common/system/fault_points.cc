#include "common/system/fault_points.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

constexpr std::pair<absl::string_view, int> kSignals[] = {
    {"KILL", SIGKILL}, {"STOP", SIGSTOP}, {"TERM", SIGTERM}, {"INT", SIGINT}};

}  // namespace

absl::StatusOr<FaultPoints::Fault> FaultPoints::Parse(absl::string_view text) {
  if (text.empty()) return Fault{};
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Fault fault;
  if (parts.size() == 3 && !parts[0].empty() && absl::SimpleAtoi(parts[1], &fault.passing) &&
      fault.passing > 0) {
    fault.point = parts[0];
    const auto signal = std::find_if(std::begin(kSignals), std::end(kSignals),
                                     [&](const auto& known) { return known.first == parts[2]; });
    if (signal != std::end(kSignals)) fault.signal = signal->second;
  }
  if (fault.signal != 0) return fault;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not of the form POINT:PASSING:KILL|STOP|TERM|INT"));
}

void FaultPoints::Count() {
  if (++passings_ == fault_.passing) kill(getpid(), fault_.signal);
}

}  // namespace cairn
