#include "common/system/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace cairn {
namespace {

// Numbers of the fields in /proc/self/stat, as in proc(5): the pid is 1, the name in brackets 2.
constexpr size_t kFirstField = 3, kUserTicks = 14, kSystemTicks = 15, kThreads = 20, kStartTicks = 22,
                 kVirtualBytes = 23, kResidentPages = 24;

double BootUnixSeconds() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    double seconds = 0;
    if (word == "btime" && stat >> seconds) return seconds;
  }
  return 0;
}

}  // namespace

ProcessUsage UsageOfThisProcess() {
  ProcessUsage usage;
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return usage;
  std::istringstream rest(text.substr(name_end + 1));
  std::array<double, kResidentPages + 1> fields{};
  std::string state;
  rest >> state;
  for (size_t field = kFirstField + 1; field <= kResidentPages; ++field) rest >> fields[field];
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  usage.cpu_seconds = (fields[kUserTicks] + fields[kSystemTicks]) / ticks;
  usage.threads = static_cast<int64_t>(fields[kThreads]);
  usage.start_unix_seconds = BootUnixSeconds() + fields[kStartTicks] / ticks;
  usage.virtual_bytes = static_cast<int64_t>(fields[kVirtualBytes]);
  usage.resident_bytes = static_cast<int64_t>(fields[kResidentPages]) * sysconf(_SC_PAGESIZE);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    usage.open_files += !entry.path().empty();
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.most_open_files = static_cast<int64_t>(limit.rlim_cur);
  return usage;
}

}  // namespace cairn
