// The link between the server of a part and the one that keeps its copy, in the in-process cluster: what
// ps/replicate.cc does over gRPC, with queues and threads.
#pragma once

#include <memory>

#include "ps/replicator.h"
#include "tests/support/in_process_link.h"

namespace cairn::test {

// A stream to the server in `slot`, which must outlive it; refused where there is none.
std::unique_ptr<ps::CopyStream> DialCopyInProcess(const ServerSlot& slot, DelayOptions delay,
                                                  ps::CopyStreamHandler& handler);

}  // namespace cairn::test
