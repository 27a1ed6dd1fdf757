#include "tests/bench/wire/contest.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "common/core/status.h"

namespace cairn::bench {
namespace {

// Seconds of processor time that a process has had so far.
double CpuOf(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double CpuOf(const std::vector<pid_t>& processes) {
  double sum = 0;
  for (pid_t process : processes) sum += CpuOf(process);
  return sum;
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

absl::Status RunOnce(const Contender& contender, double seconds, Measured* measured) {
  CAIRN_RETURN_IF_ERROR(contender.once());  // buffers and caches as they will be
  const double near_before = CpuOf(getpid()), far_before = CpuOf(contender.other_processes);
  const auto start = std::chrono::steady_clock::now();
  auto now = start;
  double calls = 0;
  while (Seconds(now - start) < seconds) {
    CAIRN_RETURN_IF_ERROR(contender.once());
    const auto end = std::chrono::steady_clock::now();
    measured->seconds.push_back(Seconds(end - now));
    now = end;
    ++calls;
  }
  const double gigabytes = contender.bytes > 0 ? calls * contender.bytes * 1e-9 : calls;
  measured->rate.push_back(gigabytes / Seconds(now - start));
  measured->near_cpu.push_back((CpuOf(getpid()) - near_before) / gigabytes);
  measured->far_cpu.push_back((CpuOf(contender.other_processes) - far_before) / gigabytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunContest(const std::vector<Contender>& contenders, const ContestOptions& options,
                        std::vector<Measured>* measured) {
  measured->assign(contenders.size(), {});
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(
          Annotate(RunOnce(contenders[i], options.seconds_each, &(*measured)[i]), contenders[i].name));
    }
  }
  return absl::OkStatus();
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())))];
}

double Median(std::vector<double> values) {
  return Percentile(std::move(values), 0.5);
}

double Ratio(const Measured& one, const Measured& other) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(one.rate.size(), other.rate.size()); ++round) {
    ratios.push_back(one.rate[round] / other.rate[round]);
  }
  return Median(std::move(ratios));
}

void PrintTable(const std::vector<Contender>& contenders, const std::vector<Measured>& measured) {
  std::printf("%-34s %10s %11s %11s %21s\n", "", "GB/s", "p50 us", "p99 us", "CPU s/GB here + there");
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Measured& m = measured[i];
    std::printf("%-34s %10.3f %11.1f %11.1f %13.3f + %5.3f\n", contenders[i].name.c_str(), Median(m.rate),
                Percentile(m.seconds, 0.5) * 1e6, Percentile(m.seconds, 0.99) * 1e6, Median(m.near_cpu),
                Median(m.far_cpu));
  }
}

}  // namespace cairn::bench
