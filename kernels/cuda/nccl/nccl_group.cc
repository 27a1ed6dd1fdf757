#include "kernels/cuda/nccl/nccl_group.h"

#include <algorithm>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime/device_scope.h"
#include "kernels/cuda/runtime/handles.h"

namespace cairn::kernels::cuda {
namespace {

// The minimum number of floats of a chunk: in a smaller one, the fixed cost of a call exceeds the cost of the
// bytes.
constexpr int64_t kMinChunk = 16 << 10;

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(const NcclLibrary& nccl, absl::Span<const int> indices, const NcclLimits& limits)
      : nccl_(nccl), limits_(limits) {
    for (const int index : indices) ranks_.push_back({.index = index, .name = absl::StrCat("/gpu:", index)});
    name_ = NameOf(nccl_);
    who_ = absl::StrCat(name_, " between ", absl::StrJoin(ranks_, ",", [](std::string* to, const Rank& rank) {
                          to->append(rank.name);
                        }));
  }

  ~NcclGroup() override {
    MutexLock lock(mutex_);
    Abort();
  }

  // Must be called first and only once. If Open() or Try() fails, the group is unusable.
  absl::Status Open() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const DeviceScope scope;
    for (Rank& rank : ranks_) {
      CAIRN_CUDA(cudaSetDevice(rank.index));
      CAIRN_ASSIGN_OR_RETURN(rank.reduce, MakeStream());
      CAIRN_ASSIGN_OR_RETURN(rank.down, MakeStream());
    }
    ncclUniqueId id;
    CAIRN_RETURN_IF_ERROR(Check(nccl_.get_unique_id(&id), "ncclGetUniqueId", nullptr));
    return InGroup("ncclCommInitRankConfig", SteadyNow() + limits_.setup, [&](absl::Status& first) {
      for (size_t i = 0; i < ranks_.size() && first.ok(); ++i) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        first = ToStatus(cudaSetDevice(ranks_[i].index), "cudaSetDevice");
        if (!first.ok()) return;
        first = Check(nccl_.comm_init_rank_config(&ranks_[i].comm, static_cast<int>(ranks_.size()), id,
                                                  static_cast<int>(i), &config),
                      "ncclCommInitRankConfig", &ranks_[i]);
      }
    });
  }

  // Lets all devices sum numbers with a known result. NCCL chooses the connections between devices by what
  // the machine reports, and where the report is wrong (a virtual machine, an IOMMU in between) reductions
  // hang or give wrong results.
  absl::Status Try() ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto count = static_cast<int64_t>(ranks_.size()) * kMinChunk;  // one chunk per device
    std::vector<Owned<void*, cudaFree>> memory(ranks_.size());
    std::vector<float*> parts;
    std::vector<float> weights, values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000 + 1);
    const size_t bytes = values.size() * sizeof(float);
    const DeviceScope scope;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      CAIRN_CUDA(cudaSetDevice(ranks_[i].index));
      CAIRN_CUDA(cudaMalloc(memory[i].out(), bytes));
      parts.push_back(static_cast<float*>(memory[i].get()));
      weights.push_back(static_cast<float>(i + 1));
      const cudaStream_t stream = ranks_[i].down.get();
      CAIRN_CUDA(cudaMemcpyAsync(parts[i], values.data(), bytes, cudaMemcpyHostToDevice, stream));
      CAIRN_CUDA(cudaStreamSynchronize(stream));  // the numbers are in place before anything reads them
    }
    CAIRN_ASSIGN_OR_RETURN(const auto host, PinnedArray<float>::Create(count));
    Begin(0, {.parts = parts, .weights = weights, .count = count, .host = host.data()});
    CAIRN_RETURN_IF_ERROR(AwaitUntil(0, SteadyNow() + limits_.setup));
    const auto total = static_cast<float>(ranks_.size() * (ranks_.size() + 1) / 2);  // all sums are exact
    for (int64_t i = 0; i < count; ++i) {
      const float expected = total * values[static_cast<size_t>(i)];
      if (host[i] == expected) continue;
      return absl::InternalError(absl::StrCat("wrong sum: ", host[i], " instead of ", expected));
    }
    return absl::OkStatus();
  }

  const std::string& name() const override { return name_; }
  const std::string& who() const { return who_; }

  void Begin(size_t slot, const Sum& sum) override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    const DeviceScope scope;
    Break(Start(slot, sum));
  }

  absl::Status Await(size_t slot) override ABSL_LOCKS_EXCLUDED(mutex_) {
    return Annotate(AwaitUntil(slot, SteadyNow() + limits_.sum), who_);
  }

 private:
  struct Rank {
    int index = 0;       // CUDA's number of the device
    std::string name{};  // "/gpu:1"
    ncclComm_t comm = nullptr;
    ncclRedOp_t weighted_sum = ncclSum;  // multiplies by weights_
    Stream reduce{}, down{};             // for reductions, for copies to the host
  };
  // The events of a sum: a chunk has been reduced, and a chunk is on the host.
  struct Slot {
    // Events of the device to which a chunk is reduced, [chunk].
    std::vector<Event> reduced{}, arrived{};
    size_t chunks = 0;
  };

  // `rank` made the call; null if the call has no rank.
  absl::Status Check(ncclResult_t result, const char* call, const Rank* rank) const {
    return rank == nullptr ? CheckNccl(nccl_, result, call, nullptr)
                           : CheckNccl(nccl_, result, absl::StrCat(call, " on ", rank->name), rank->comm);
  }

  // One NCCL group call: `ask` makes the calls for all devices, up to the first that fails. Waits until NCCL
  // has accepted them.
  template <typename Ask>
  absl::Status InGroup(const char* call, TimePoint deadline, const Ask& ask)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CAIRN_RETURN_IF_ERROR(Check(nccl_.group_start(), "ncclGroupStart", nullptr));
    absl::Status first;
    ask(first);
    const absl::Status ended = Check(nccl_.group_end(), call, nullptr);
    CAIRN_RETURN_IF_ERROR(first);
    CAIRN_RETURN_IF_ERROR(ended);
    for (;;) {
      CAIRN_ASSIGN_OR_RETURN(const Rank* const busy, BusyRank(call));
      if (busy == nullptr) return absl::OkStatus();
      if (SteadyNow() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat(call, " on ", busy->name, " did not finish in time"));
      }
      std::this_thread::sleep_for(kNcclPoll);
    }
  }

  // A rank whose last call NCCL has not accepted yet; null if there is no such rank. Also returns the error
  // of a call that was accepted and failed later.
  absl::StatusOr<const Rank*> BusyRank(const char* call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Rank* busy = nullptr;
    for (const Rank& rank : ranks_) {
      ncclResult_t state = ncclSuccess;
      CAIRN_RETURN_IF_ERROR(
          Check(nccl_.comm_get_async_error(rank.comm, &state), "ncclCommGetAsyncError", &rank));
      CAIRN_RETURN_IF_ERROR(Check(state, call, &rank));
      if (state == ncclInProgress) busy = &rank;
    }
    return busy;
  }

  absl::Status Start(size_t slot, const Sum& sum) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CAIRN_CHECK(sum.parts.size() == ranks_.size() && sum.weights.size() == ranks_.size() && sum.count > 0);
    CAIRN_RETURN_IF_ERROR(UseWeights(sum.weights));
    CAIRN_RETURN_IF_ERROR(ReserveSlot(slot));
    const auto ranks = static_cast<int64_t>(ranks_.size());
    const int64_t chunk = std::max(kMinChunk, (sum.count + ranks - 1) / ranks);
    const auto chunks = static_cast<size_t>((sum.count + chunk - 1) / chunk);
    const auto floats = [&](size_t i) {
      return std::min(chunk, sum.count - static_cast<int64_t>(i) * chunk);
    };
    CAIRN_RETURN_IF_ERROR(InGroup("ncclReduce", SteadyNow() + limits_.call, [&](absl::Status& first) {
      for (size_t root = 0; root < chunks; ++root) {
        for (size_t i = 0; i < ranks_.size() && first.ok(); ++i) {
          float* const at = sum.parts[i] + static_cast<int64_t>(root) * chunk;
          first = Check(
              nccl_.reduce(at, at, static_cast<size_t>(floats(root)), ncclFloat32, ranks_[i].weighted_sum,
                           static_cast<int>(root), ranks_[i].comm, ranks_[i].reduce.get()),
              "ncclReduce", &ranks_[i]);
        }
      }
    }));
    Slot& begun = slots_[slot];
    begun.chunks = chunks;
    for (size_t root = 0; root < chunks; ++root) {
      const Rank& rank = ranks_[root];
      const int64_t begin = static_cast<int64_t>(root) * chunk;
      CAIRN_CUDA(cudaSetDevice(rank.index));
      CAIRN_CUDA(cudaEventRecord(begun.reduced[root].get(), rank.reduce.get()));
      CAIRN_CUDA(cudaStreamWaitEvent(rank.down.get(), begun.reduced[root].get(), 0));
      CAIRN_CUDA(cudaMemcpyAsync(sum.host + begin, sum.parts[root] + begin,
                                 static_cast<size_t>(floats(root)) * sizeof(float), cudaMemcpyDeviceToHost,
                                 rank.down.get()));
      CAIRN_CUDA(cudaEventRecord(begun.arrived[root].get(), rank.down.get()));
    }
    return absl::OkStatus();
  }

  // NCCL multiplies a device's values as it reads them, which saves a pass over the gradient.
  absl::Status UseWeights(absl::Span<const float> weights) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (weights == absl::MakeConstSpan(weights_)) return absl::OkStatus();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (!weights_.empty()) {
        CAIRN_RETURN_IF_ERROR(
            Check(nccl_.red_op_destroy(rank.weighted_sum, rank.comm), "ncclRedOpDestroy", &rank));
      }
      float weight = weights[i];
      CAIRN_RETURN_IF_ERROR(Check(nccl_.red_op_create_pre_mul_sum(&rank.weighted_sum, &weight, ncclFloat32,
                                                                  ncclScalarHostImmediate, rank.comm),
                                  "ncclRedOpCreatePreMulSum", &rank));
    }
    weights_.assign(weights.begin(), weights.end());
    return absl::OkStatus();
  }

  absl::Status ReserveSlot(size_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (slots_.size() <= slot) {
      Slot made;
      for (const Rank& rank : ranks_) {
        CAIRN_CUDA(cudaSetDevice(rank.index));  // an event belongs to a device
        CAIRN_ASSIGN_OR_RETURN(made.reduced.emplace_back(), MakeEvent());
        CAIRN_ASSIGN_OR_RETURN(made.arrived.emplace_back(), MakeEvent());
      }
      slots_.push_back(std::move(made));
    }
    return absl::OkStatus();
  }

  absl::Status AwaitUntil(size_t slot, TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      {
        MutexLock lock(mutex_);
        if (!broken_.ok()) return broken_;
        const absl::StatusOr<const Rank*> waiting = WaitingFor(slots_[slot]);
        if (waiting.ok() && *waiting == nullptr) return absl::OkStatus();
        Break(waiting.status());
        if (broken_.ok() && SteadyNow() >= deadline) {
          Break(absl::DeadlineExceededError(absl::StrCat(
              "the all-reduce over all devices did not complete on ", (*waiting)->name, " in time")));
        }
        if (!broken_.ok()) return broken_;
      }
      std::this_thread::sleep_for(kNcclPoll);
    }
  }

  // A device whose chunk has not arrived; null if all chunks have arrived.
  absl::StatusOr<const Rank*> WaitingFor(const Slot& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (size_t root = 0; root < slot.chunks; ++root) {
      const cudaError_t error = cudaEventQuery(slot.arrived[root].get());
      if (error == cudaSuccess) continue;
      if (error != cudaErrorNotReady) {
        return Annotate(ToStatus(error, "the all-reduce over all devices"), ranks_[root].name);
      }
      static_cast<void>(cudaGetLastError());  // clears cudaErrorNotReady, which is not an error
      CAIRN_RETURN_IF_ERROR(BusyRank("ncclReduce").status());
      return &ranks_[root];
    }
    return nullptr;
  }

  // If `why` is an error, ends all sums. Copies to the host that are in progress finish before the error is
  // reported, because their memory may be freed afterwards.
  void Break(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (why.ok()) return;
    broken_ = why;
    Abort();
    const TimePoint deadline = SteadyNow() + limits_.call;
    for (const Rank& rank : ranks_) {
      while (cudaStreamQuery(rank.down.get()) == cudaErrorNotReady && SteadyNow() < deadline) {
        std::this_thread::sleep_for(kNcclPoll);
      }
    }
    static_cast<void>(cudaGetLastError());  // already reported, or no error
  }

  // Called for every group at its end; if there was no error, nothing is in progress. All ranks are aborted
  // in one NCCL group call, because otherwise one device would wait for the others.
  void Abort() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    static_cast<void>(nccl_.group_start());
    for (Rank& rank : ranks_) {
      if (rank.comm != nullptr) static_cast<void>(nccl_.comm_abort(std::exchange(rank.comm, nullptr)));
    }
    static_cast<void>(nccl_.group_end());
  }

  const NcclLibrary nccl_;
  const NcclLimits limits_;
  std::string name_, who_;  // "NCCL 2.28.9", "NCCL 2.28.9 between /gpu:0,/gpu:1"
  Mutex mutex_;
  // Used under the lock, except for constants: NCCL requires that calls for one communicator are made one at
  // a time.
  std::vector<Rank> ranks_;
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  // The weights of weighted_sum, [device]; empty: not set.
  std::vector<float> weights_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceGroup>> MakeNcclGroup(const NcclLibrary& nccl,
                                                           absl::Span<const int> indices,
                                                           const NcclLimits& limits) {
  auto group = std::make_unique<NcclGroup>(nccl, indices, limits);
  absl::Status status = group->Open();
  if (status.ok()) status = group->Try();
  if (!status.ok()) return Annotate(status, group->who());
  return std::unique_ptr<DeviceGroup>(std::move(group));
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateGroup(absl::Span<const int> indices) {
  CAIRN_ASSIGN_OR_RETURN(const NcclLibrary nccl, OpenNccl());
  return MakeNcclGroup(nccl, indices);
}

}  // namespace cairn::kernels::cuda
