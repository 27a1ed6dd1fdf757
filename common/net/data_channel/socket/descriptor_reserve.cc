#include "common/net/data_channel/socket/descriptor_reserve.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "common/core/log.h"
#include "common/system/limits.h"

namespace cairn::net {
namespace {

constexpr int64_t kMaxReserved = 64;
constexpr auto kWarnEvery = std::chrono::seconds(10);

}  // namespace

int64_t DescriptorReserve::Of(int64_t limit) {
  return std::min(kMaxReserved, limit / 8);
}

bool DescriptorReserve::Admits(int accepted) {
  const int64_t limit = DescriptorLimit();
  if (accepted >= 0 && accepted < limit - Of(limit)) return true;
  if (accepted >= 0 || errno == EMFILE || errno == ENFILE) Warn();
  return false;
}

void DescriptorReserve::Warn() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (warned_ != TimePoint() && now - warned_ < kWarnEvery) return;
  warned_ = now;
  const int64_t limit = DescriptorLimit();
  LogWarning("out of file descriptors: this process may have ", limit, " (ulimit -n), ", Of(limit),
             " of them are reserved for files, and the others are in use; new connections are refused. Raise "
             "the limit, or check which "
             "clients are connected");
}

}  // namespace cairn::net
