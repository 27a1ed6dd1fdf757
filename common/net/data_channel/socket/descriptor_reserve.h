// Reserves the last descriptors of the process for its own files: while only those are free, new connections
// are refused.
//
// A task whose connections use up all descriptors can open no checkpoint, and gRPC 1.51 stops listening for
// ever when it gets no descriptor for a connection (CVE-2023-4785). The system assigns the lowest free
// number, so the number of a new descriptor shows how many are in use. Only the accepting thread may call.
#pragma once

#include <cstdint>

#include "common/core/clock.h"

namespace cairn::net {

class DescriptorReserve {
 public:
  // The size of the reserve under this limit of open files: an eighth of it, at most 64.
  static int64_t Of(int64_t limit);

  // Whether the connection that accept() has just returned may be kept. False for -1, which means no
  // connection; errno must still be as accept() has set it. Warns of a lack of descriptors, at most once in
  // 10 s.
  bool Admits(int accepted);

 private:
  void Warn();
  TimePoint warned_{};
};

}  // namespace cairn::net
