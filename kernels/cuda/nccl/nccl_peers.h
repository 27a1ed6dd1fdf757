// Sums over the GPUs of several processes with NCCL: each process has one GPU and is one rank.
//
// A sum is one ncclAllReduce in place, and a copy to the host that overlaps the next sum's reduction.
// Communicators are non-blocking: every wait has a limit and is aborted as soon as the caller requests it,
// for example because a member has failed. NCCL alone may notice that late or never, because the other
// members' kernels wait for the failed one.
//
// NCCL adds in its own order, which is the same on every run that finds the same links.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/peer_group.h"

namespace cairn::kernels::cuda {

struct NcclPeerLimits {
  Duration setup = std::chrono::seconds(60);  // for all members to join and to compute the test sums
  Duration end = std::chrono::seconds(30);    // for sums in progress when a group is aborted
};

// The CUDA device with this index: CreateCudaPeer() in kernels/cuda_backend.h.
absl::StatusOr<std::unique_ptr<PeerDevice>> MakeNcclPeer(const NcclLibrary& nccl, int index,
                                                         const NcclPeerLimits& limits = {});

}  // namespace cairn::kernels::cuda
