// A sum over all blocks of a kernel, which the host receives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

class HostSum final : public Delivery {
 public:
  // For a kernel that sums over `elements`, several for each thread. `context` must outlive it.
  static absl::StatusOr<std::unique_ptr<HostSum>> Create(Context& context, int64_t elements) {
    constexpr int64_t kMinElementsOfThread = 4, kBlocksOfMultiprocessor = 8;
    const auto grid =
        static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(elements, kBlock * kMinElementsOfThread), 1,
                                                  kBlocksOfMultiprocessor * context.multiprocessors()));
    CAIRN_RETURN_IF_ERROR(context.ReserveScratch(grid * int64_t{sizeof(double)}));
    CAIRN_ASSIGN_OR_RETURN(auto counter, context.Allocate(1, "counter of blocks"));
    CAIRN_ASSIGN_OR_RETURN(auto result, PinnedArray<double>::Create(1));
    return std::unique_ptr<HostSum>(new HostSum(context, grid, std::move(counter), std::move(result)));
  }

  unsigned grid() const { return grid_; }  // blocks of kBlock threads
  // The arguments of SumOverGrid(), and where the kernel writes the sum.
  double* partials() { return static_cast<double*>(context_.scratch()); }
  unsigned* counter() { return reinterpret_cast<unsigned*>(counter_->data()); }
  double* result() { return result_.data(); }

  // After the launch of the kernel: the next Synchronize() writes the sum to `to` in host memory.
  void ExpectAt(double* to) {
    to_ = to;
    context_.Expect(*this);
  }
  absl::Status Deliver() override {
    *to_ = result_[0];
    return absl::OkStatus();
  }

 private:
  HostSum(Context& context, unsigned grid, std::unique_ptr<DeviceMemory> counter, PinnedArray<double> result)
      : context_(context), grid_(grid), counter_(std::move(counter)), result_(std::move(result)) {}

  Context& context_;
  const unsigned grid_;
  const std::unique_ptr<DeviceMemory> counter_;
  const PinnedArray<double> result_;
  double* to_ = nullptr;
};

}  // namespace cairn::kernels::cuda
