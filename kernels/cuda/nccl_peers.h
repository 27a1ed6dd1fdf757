// Sums of the GPUs of several processes by NCCL: each process has one, and is a rank of its own.
//
// A sum is one ncclAllReduce in place, and a copy to the host beside the next sum's reduction. Communicators
// do not block: whatever is waited for has a limit, and is given up as soon as the caller says so, as when a
// member has gone. NCCL alone may notice that late, or never: the others' kernels wait for its part.
//
// NCCL adds in an order of its own, which is the same on every run that finds the same links.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "kernels/cuda/nccl_library.h"
#include "kernels/peer_group.h"

namespace cairn::kernels::cuda {

struct NcclPeerLimits {
  Duration setup = std::chrono::seconds(60);  // for all members to join, and to add up on trial
  Duration end = std::chrono::seconds(30);    // for what is under way when a group is given up
};

// CUDA's device of this index: CreateCudaPeer() of kernels/cuda_backend.h.
absl::StatusOr<std::unique_ptr<PeerDevice>> MakeNcclPeer(const NcclLibrary& nccl, int index,
                                                         const NcclPeerLimits& limits = {});

}  // namespace cairn::kernels::cuda
