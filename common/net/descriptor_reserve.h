// Keeps the last descriptors of the process for its own work: whoever connects while only those are left is
// refused, and the process goes on.
//
// A task whose descriptors are used up by connections can open no checkpoint, and gRPC 1.51 stops listening
// for ever when it has none for a connection (CVE-2023-4785). The system gives the lowest number that is
// free, so the number of a new descriptor tells how many are in use. One thread, the one that accepts.
#pragma once

#include <cstdint>

#include "common/core/clock.h"

namespace cairn::net {

class DescriptorReserve {
 public:
  // Of a limit of open files: an eighth, at most 64.
  static int64_t Of(int64_t limit);

  // Of what accept() has just returned: whether that connection may be kept. False for none, -1, where errno
  // still tells whether a descriptor was lacking. Warns of a lack at most once in 10 s.
  bool Admits(int accepted);

 private:
  void Warn();
  TimePoint warned_{};
};

}  // namespace cairn::net
