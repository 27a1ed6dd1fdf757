// Replaces nccl_group.cc, nccl_library.cc and nccl_peers.cc in a build without nccl.h.
#include "kernels/cuda/device.h"

namespace cairn::kernels::cuda {

absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateGroup(absl::Span<const int> /*indices*/) {
  return absl::NotFoundError("this build does not include NCCL");
}

absl::StatusOr<std::unique_ptr<PeerDevice>> CreatePeer(int /*index*/) {
  return absl::NotFoundError("this build does not include NCCL");
}

}  // namespace cairn::kernels::cuda
