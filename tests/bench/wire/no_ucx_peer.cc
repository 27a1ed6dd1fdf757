// Replaces ucx_peer.cc in a build without UCX.
#include "tests/bench/wire/ucx_peer.h"

namespace cairn::bench {

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxPeer::Start(const std::string& /*transport*/, size_t /*bytes*/) {
  return absl::UnimplementedError("this build does not include UCX (Debian: libucx-dev)");
}

}  // namespace cairn::bench
