#include "kernels/cuda/nccl/nccl_peers.h"

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime/device_scope.h"
#include "kernels/cuda/runtime/handles.h"

namespace cairn::kernels::cuda {
namespace {

constexpr int64_t kTrialFloats = 16 << 10;

class NcclPeerGroup final : public PeerGroup {
 public:
  NcclPeerGroup(const NcclLibrary& nccl, int index, PeerDevice::Seat seat, const NcclPeerLimits& limits)
      : nccl_(nccl), index_(index), seat_(std::move(seat)), limits_(limits) {
    who_ = absl::StrCat(NameOf(nccl_), " between the GPUs of ", seat_.members, " workers");
  }
  ~NcclPeerGroup() override {
    if (broken_.ok()) Break(absl::CancelledError("the group was aborted"));
  }

  // Must be called first and only once. If it fails, the group is unusable.
  absl::Status Open() {
    const DeviceScope scope;
    const TimePoint deadline = SteadyNow() + limits_.setup;
    absl::Status status = Connect(deadline);
    if (status.ok()) status = Try(deadline);
    Break(status);
    return Annotate(status, who_);
  }

  void Begin(size_t slot, const Sum& sum, TimePoint deadline) override {
    if (!broken_.ok()) return;
    const DeviceScope scope;
    Break(Start(slot, sum, deadline));
  }

  absl::Status Await(size_t slot, TimePoint deadline) override {
    while (broken_.ok()) {
      const absl::StatusOr<bool> arrived = Arrived(slots_[slot]);
      const bool here = arrived.ok() && *arrived;
      const absl::Status status = here           ? Fetch(slots_[slot])
                                  : arrived.ok() ? Pause(deadline, "a sum")
                                                 : arrived.status();
      if (here && status.ok()) return status;
      Break(status);
    }
    return Annotate(broken_, who_);
  }

 private:
  struct Slot {
    Event reduced{}, arrived{};  // the sum is complete on the device, on the host
    // Set if the copy to the host would have blocked in Begin(), so that Await() must make it.
    std::optional<Sum> late{};
  };

  absl::Status Check(ncclResult_t result, absl::string_view call) const {
    return CheckNccl(nccl_, result, call, comm_);
  }

  // Waits a moment between two checks, and calls Seat::look.
  absl::Status Pause(TimePoint deadline, absl::string_view what) const {
    CAIRN_RETURN_IF_ERROR(seat_.look());
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(what, " did not finish in time"));
    }
    std::this_thread::sleep_for(kNcclPoll);
    return absl::OkStatus();
  }

  // Waits until NCCL has accepted the call that returned `result`.
  absl::Status TakenOver(ncclResult_t result, absl::string_view call, TimePoint deadline) const {
    CAIRN_RETURN_IF_ERROR(Check(result, call));
    for (;;) {
      CAIRN_ASSIGN_OR_RETURN(const bool busy, Busy(call));
      if (!busy) return absl::OkStatus();
      CAIRN_RETURN_IF_ERROR(Pause(deadline, call));
    }
  }

  // Whether NCCL is still processing the last call. Also returns the error of a call that failed later.
  absl::StatusOr<bool> Busy(absl::string_view call) const {
    ncclResult_t state = ncclSuccess;
    CAIRN_RETURN_IF_ERROR(Check(nccl_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError"));
    CAIRN_RETURN_IF_ERROR(Check(state, call));
    return state == ncclInProgress;
  }

  absl::Status Connect(TimePoint deadline) {
    CAIRN_CUDA(cudaSetDevice(index_));
    CAIRN_ASSIGN_OR_RETURN(reduce_, MakeStream());
    CAIRN_ASSIGN_OR_RETURN(down_, MakeStream());
    ncclUniqueId id;
    if (seat_.group.size() != sizeof(id.internal)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group identifier of ", seat_.group.size(), " bytes is not one of NCCL's"));
    }
    std::memcpy(id.internal, seat_.group.data(), sizeof(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return TakenOver(nccl_.comm_init_rank_config(&comm_, seat_.members, id, seat_.member, &config),
                     "ncclCommInitRankConfig", deadline);
  }

  // Tests the group with a sum whose result is known: member m contributes some numbers times m + 1. If the
  // machine's links are not what they are reported to be, reductions hang or give wrong results.
  absl::Status Try(TimePoint deadline) {
    constexpr int kPeriod = 61;
    std::vector<float> values(kTrialFloats);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % kPeriod + 1);
    Owned<void*, cudaFree> memory;
    CAIRN_CUDA(cudaMalloc(memory.out(), values.size() * sizeof(float)));
    CAIRN_CUDA(cudaMemcpyAsync(memory.get(), values.data(), values.size() * sizeof(float),
                               cudaMemcpyHostToDevice, down_.get()));
    CAIRN_CUDA(cudaStreamSynchronize(down_.get()));
    CAIRN_ASSIGN_OR_RETURN(const auto host, PinnedArray<float>::Create(kTrialFloats));
    Begin(0,
          {.part = static_cast<float*>(memory.get()),
           .weight = static_cast<float>(seat_.member + 1),
           .count = kTrialFloats,
           .host = host.data()},
          deadline);
    const absl::Status summed = Await(0, deadline);
    if (!broken_.ok()) return broken_;
    CAIRN_RETURN_IF_ERROR(summed);
    const auto members = static_cast<float>(seat_.members);
    for (int64_t i = 0; i < kTrialFloats; ++i) {
      const float expected = members * (members + 1) / 2 * values[static_cast<size_t>(i)];  // exact
      if (host[i] == expected) continue;
      return absl::InternalError(absl::StrCat("wrong sum: ", host[i], " instead of ", expected));
    }
    return absl::OkStatus();
  }

  absl::Status Start(size_t slot, const Sum& sum, TimePoint deadline) {
    CAIRN_CUDA(cudaSetDevice(index_));
    CAIRN_RETURN_IF_ERROR(UseWeight(sum.weight));
    CAIRN_RETURN_IF_ERROR(ReserveSlot(slot));
    CAIRN_RETURN_IF_ERROR(TakenOver(nccl_.all_reduce(sum.part, sum.part, static_cast<size_t>(sum.count),
                                                     ncclFloat32, sum_op_, comm_, reduce_.get()),
                                    "ncclAllReduce", deadline));
    Slot& begun = slots_[slot];
    cudaPointerAttributes attributes{};
    CAIRN_CUDA(cudaPointerGetAttributes(&attributes, sum.host));
    begun.late.reset();
    // A copy to memory that is not pinned would block the host in the call, without a time limit.
    if (attributes.type == cudaMemoryTypeUnregistered) {
      begun.late = sum;
      CAIRN_CUDA(cudaEventRecord(begun.arrived.get(), reduce_.get()));
      return absl::OkStatus();
    }
    CAIRN_CUDA(cudaEventRecord(begun.reduced.get(), reduce_.get()));
    CAIRN_CUDA(cudaStreamWaitEvent(down_.get(), begun.reduced.get(), 0));
    CAIRN_CUDA(cudaMemcpyAsync(sum.host, sum.part, static_cast<size_t>(sum.count) * sizeof(float),
                               cudaMemcpyDeviceToHost, down_.get()));
    CAIRN_CUDA(cudaEventRecord(begun.arrived.get(), down_.get()));
    return absl::OkStatus();
  }

  // Makes NCCL multiply this member's part by the weight as it reads the part, which saves a pass over the
  // gradient. A weight of 1 needs no multiplication.
  absl::Status UseWeight(float weight) {
    if (weight == weight_) return absl::OkStatus();
    if (weight_ != 1) {
      CAIRN_RETURN_IF_ERROR(Check(nccl_.red_op_destroy(sum_op_, comm_), "ncclRedOpDestroy"));
    }
    weight_ = 1;
    sum_op_ = ncclSum;
    if (weight == 1) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(
        Check(nccl_.red_op_create_pre_mul_sum(&sum_op_, &weight, ncclFloat32, ncclScalarHostImmediate, comm_),
              "ncclRedOpCreatePreMulSum"));
    weight_ = weight;
    return absl::OkStatus();
  }

  absl::Status ReserveSlot(size_t slot) {
    while (slots_.size() <= slot) {
      Slot made;
      CAIRN_ASSIGN_OR_RETURN(made.reduced, MakeEvent());
      CAIRN_ASSIGN_OR_RETURN(made.arrived, MakeEvent());
      slots_.push_back(std::move(made));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Arrived(const Slot& slot) const {
    const cudaError_t error = cudaEventQuery(slot.arrived.get());
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // clears cudaErrorNotReady, which is not an error
    } else if (error != cudaSuccess) {
      return ToStatus(error, "a sum");
    }
    // A kernel that NCCL stopped because of a failure counts as finished too, so the communicator's error is
    // checked.
    CAIRN_RETURN_IF_ERROR(Busy("ncclAllReduce").status());
    return error == cudaSuccess;
  }

  // Makes the copy to the host that Begin() left out. Waits only for the device.
  absl::Status Fetch(Slot& slot) {
    if (!slot.late.has_value()) return absl::OkStatus();
    const DeviceScope scope;
    CAIRN_CUDA(cudaSetDevice(index_));
    CAIRN_CUDA(cudaMemcpyAsync(slot.late->host, slot.late->part,
                               static_cast<size_t>(slot.late->count) * sizeof(float), cudaMemcpyDeviceToHost,
                               down_.get()));
    CAIRN_CUDA(cudaStreamSynchronize(down_.get()));
    slot.late.reset();
    return absl::OkStatus();
  }

  // If `why` is an error, ends all sums. Copies to the host that are in progress finish before the error is
  // reported, because their memory may be freed afterwards.
  void Break(const absl::Status& why) {
    if (why.ok()) return;
    broken_ = why;
    const DeviceScope scope;
    static_cast<void>(cudaSetDevice(index_));
    if (comm_ != nullptr) static_cast<void>(nccl_.comm_abort(std::exchange(comm_, nullptr)));
    const TimePoint deadline = SteadyNow() + limits_.end;
    while (down_.get() != nullptr && cudaStreamQuery(down_.get()) == cudaErrorNotReady &&
           SteadyNow() < deadline) {
      std::this_thread::sleep_for(kNcclPoll);
    }
    static_cast<void>(cudaGetLastError());  // already reported, or no error
  }

  const NcclLibrary nccl_;
  const int index_;
  const PeerDevice::Seat seat_;
  const NcclPeerLimits limits_;
  std::string who_;  // "NCCL 2.28.9 between the GPUs of 4 workers"
  absl::Status broken_;
  ncclComm_t comm_ = nullptr;
  Stream reduce_, down_;  // for reductions, for copies to the host
  std::deque<Slot> slots_;
  float weight_ = 1;  // the factor of sum_op_
  ncclRedOp_t sum_op_ = ncclSum;
};

class NcclPeer final : public PeerDevice {
 public:
  NcclPeer(const NcclLibrary& nccl, int index, std::string id, const NcclPeerLimits& limits)
      : nccl_(nccl), index_(index), limits_(limits), library_(NameOf(nccl_)), id_(std::move(id)) {}

  const std::string& library() const override { return library_; }
  const std::string& id() const override { return id_; }

  absl::StatusOr<std::string> DrawGroup() override {
    ncclUniqueId id;
    CAIRN_RETURN_IF_ERROR(
        Annotate(CheckNccl(nccl_, nccl_.get_unique_id(&id), "ncclGetUniqueId", nullptr), library_));
    return std::string(id.internal, sizeof(id.internal));
  }

  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(Seat seat) override {
    auto group = std::make_unique<NcclPeerGroup>(nccl_, index_, std::move(seat), limits_);
    CAIRN_RETURN_IF_ERROR(group->Open());
    return std::unique_ptr<PeerGroup>(std::move(group));
  }

 private:
  const NcclLibrary nccl_;
  const int index_;
  const NcclPeerLimits limits_;
  const std::string library_, id_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerDevice>> MakeNcclPeer(const NcclLibrary& nccl, int index,
                                                         const NcclPeerLimits& limits) {
  cudaDeviceProp properties{};
  CAIRN_CUDA(cudaGetDeviceProperties(&properties, index));
  const absl::string_view uuid(properties.uuid.bytes, sizeof(properties.uuid.bytes));
  return std::make_unique<NcclPeer>(nccl, index, absl::BytesToHexString(uuid), limits);
}

absl::StatusOr<std::unique_ptr<PeerDevice>> CreatePeer(int index) {
  CAIRN_ASSIGN_OR_RETURN(const NcclLibrary nccl, OpenNccl());
  return MakeNcclPeer(nccl, index);
}

}  // namespace cairn::kernels::cuda
