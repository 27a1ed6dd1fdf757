#include "common/monitor/exposition.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/flags/flags.h"
#include "common/system/process_usage.h"

namespace cairn::monitor {
namespace {

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.9g", value);
}

}  // namespace

void Exposition::Family(absl::string_view name, absl::string_view type, absl::string_view help) {
  family_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}}),
                  "\n# TYPE ", name, " ", type, "\n");
}

void Exposition::Line(absl::string_view suffix, const Labels& labels, double value) {
  absl::StrAppend(&text_, family_, suffix);
  const char* separator = "{";
  for (const auto& [name, label] : labels) {
    absl::StrAppend(&text_, separator, name, "=\"",
                    absl::StrReplaceAll(label, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
    separator = ",";
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", Number(value), "\n");
}

void Exposition::Sample(const Labels& labels, double value) {
  Line("", labels, value);
}

void Exposition::Sample(const Labels& labels, const Distribution& distribution) {
  std::vector<int64_t> counts;
  for (size_t i = 0; i <= distribution.limits().size(); ++i) counts.push_back(distribution.count_in(i));
  Sample(labels, distribution.limits(), counts, distribution.sum());
}

void Exposition::Sample(const Labels& labels, const std::vector<double>& limits,
                        const std::vector<int64_t>& counts, double sum) {
  int64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    Labels bucket = labels;
    bucket.emplace_back("le", i < limits.size() ? Number(limits[i]) : "+Inf");
    Line("_bucket", bucket, static_cast<double>(below));
  }
  Line("_sum", labels, sum);
  Line("_count", labels, static_cast<double>(below));
}

void Exposition::AddProcess() {
  const ProcessUsage usage = UsageOfThisProcess();
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  Gauge("cairn_build_info", "1, with the version of the program as a label.");
  Sample({{"version", std::string(Version())}}, 1);
  Counter("process_cpu_seconds_total", "Processor time of all threads, user and system.", usage.cpu_seconds);
  Gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.",
        number(usage.resident_bytes));
  Gauge("process_virtual_memory_bytes", "Address space of the process.", number(usage.virtual_bytes));
  Gauge("process_start_time_seconds", "When the process was started, since 1970.", usage.start_unix_seconds);
  Gauge("process_open_fds", "Open file descriptors.", number(usage.open_files));
  Gauge("process_max_fds", "How many file descriptors may be open.", number(usage.most_open_files));
  Gauge("process_threads", "Threads of the process.", number(usage.threads));
}

}  // namespace cairn::monitor
