// The version at which a job ends. Written by the thread that executes the log; read by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace cairn::ps {

class FinalVersion {
 public:
  // 0: the job has no end yet.
  explicit FinalVersion(int64_t version)
      : version_(version > 0 ? version : std::numeric_limits<int64_t>::max()) {}

  void Set(int64_t version) { version_ = version; }
  int64_t Get() const { return version_; }
  // Whether the job has ended at `version`.
  bool IsReached(int64_t version) const { return version >= version_; }

 private:
  std::atomic<int64_t> version_;
};

}  // namespace cairn::ps
