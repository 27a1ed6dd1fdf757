#include "tests/bench/wire/json_lines.h"

#include <stdlib.h>  // getloadavg

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn::bench {
namespace {

// As Linux reports it; "unknown" on processors that have no such line.
std::string ProcessorModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    return std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return "unknown";
}

// Six digits: more than any clock is good for.
double Rounded(double value) {
  return std::strtod(absl::StrFormat("%.6g", value).c_str(), nullptr);
}

double Least(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Most(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

}  // namespace

RunRecord RunOf(int64_t size_bytes, int workers, int servers, int rounds) {
  RunRecord run{
      .size_bytes = size_bytes, .workers = workers, .servers = servers, .rounds = rounds, .date = {}};
  double load = 0;
  if (getloadavg(&load, 1) == 1) run.load = load;
  run.date = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone());
  return run;
}

absl::Status AppendJsonLines(const std::string& path, const RunRecord& run,
                             const std::vector<Contender>& contenders,
                             const std::vector<Measured>& measured) {
  const nlohmann::ordered_json machine = {{"processor", ProcessorModel()},
                                          {"cores", std::thread::hardware_concurrency()}};
  std::string lines;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    const Measured& m = measured[i];
    nlohmann::ordered_json line = {{"name", contender.name}};
    if (!contender.transport.empty()) line["transport"] = contender.transport;
    if (!contender.encoding.empty()) line["encoding"] = contender.encoding;
    line["size_bytes"] = run.size_bytes;
    line["variables"] = run.variables;
    line["workers"] = run.workers;
    line["ps"] = run.servers;
    line["rounds"] = run.rounds;
    line["gbps_median"] = Rounded(Median(m.rate));
    line["gbps_least"] = Rounded(Least(m.rate));
    line["gbps_most"] = Rounded(Most(m.rate));
    line["p50_us"] = Rounded(Percentile(m.seconds, 0.5) * 1e6);
    line["p99_us"] = Rounded(Percentile(m.seconds, 0.99) * 1e6);
    line["cpu_seconds_per_gb_here"] = Rounded(Median(m.near_cpu));
    line["cpu_seconds_per_gb_there"] = Rounded(Median(m.far_cpu));
    line["machine"] = machine;
    line["load"] = Rounded(run.load);
    line["date"] = run.date;
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  std::ofstream file(path, std::ios::app);
  file << lines << std::flush;
  if (!file) return absl::UnavailableError(absl::StrCat("cannot append to '", path, "'"));
  return absl::OkStatus();
}

}  // namespace cairn::bench
