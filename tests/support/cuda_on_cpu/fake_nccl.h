// NCCL as kernels/cuda calls it, with every rank in this process and all memory on the host. It computes sums
// when a group of calls ends, and checks NCCL's rules. Only one may exist at a time. Calls come from any
// thread, one at a time.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/nccl/nccl_library.h"

struct ncclComm {
  int rank = 0, device = 0;
  int busy = 0;  // for how many questions more
  int next_op = ncclNumOps;
  std::map<int, float> ops{};  // that are there: what they multiply by
};

namespace cairn::cuda_on_cpu {

class FakeNccl {
 public:
  FakeNccl() { current_ = this; }
  ~FakeNccl() {
    EXPECT_EQ(communicators(), 0) << "left behind";
    current_ = nullptr;
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  kernels::cuda::NcclLibrary library() const {
    return {.get_version = &GetVersion,
            .get_unique_id = &GetUniqueId,
            .comm_init_rank_config = &CommInitRankConfig,
            .comm_get_async_error = &CommGetAsyncError,
            .comm_abort = &CommAbort,
            .get_error_string = [](ncclResult_t) { return "a fault"; },
            .get_last_error = [](ncclComm_t) { return "of the test"; },
            .group_start = &GroupStart,
            .group_end = &GroupEnd,
            .red_op_create_pre_mul_sum = &RedOpCreatePreMulSum,
            .red_op_destroy = &RedOpDestroy,
            .reduce = &Reduce};
  }

  int questions = 2;  // after which a call is taken over

  // Faults, from now on.
  std::string failing{};             // the call that fails on rank 1, or without a rank: "ncclReduce"
  bool never_done = false;           // no call is ever taken over
  bool stalls = false;               // reductions do not come to an end
  bool wrong = false;                // ... or come out wrong
  ncclResult_t later = ncclSuccess;  // what rank 1 says when asked for its state

  struct Reduction {
    int root = 0;
    size_t count = 0;
  };
  std::vector<Reduction> reductions{};  // each once for all ranks
  int groups = 0;                       // of them
  int communicators() const { return static_cast<int>(comms_.size()); }

 private:
  struct Call {
    const float* from;
    float* to;
    size_t count;
    float weight;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
  };
  static ncclResult_t Answer(const char* call, ncclComm_t comm) {
    const bool fails = current_->failing == call && (comm == nullptr || comm->rank == 1);
    return fails ? ncclUnhandledCudaError : ncclSuccess;
  }

  static ncclResult_t GetVersion(int* version) {
    *version = 22809;
    return ncclSuccess;
  }
  static ncclResult_t GetUniqueId(ncclUniqueId* id) {
    *id = {};
    return Answer("ncclGetUniqueId", nullptr);
  }
  static ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank,
                                         ncclConfig_t* config) {
    EXPECT_EQ(config->magic, 0xcafebeef);
    EXPECT_EQ(config->blocking, 0);
    EXPECT_LT(rank, ranks);
    EXPECT_GT(current_->depth_, 0) << "one thread makes all ranks, which wait for each other";
    current_->comms_.push_back(
        std::make_unique<ncclComm>(ncclComm{.rank = rank, .busy = current_->questions}));
    *comm = current_->comms_.back().get();
    static_cast<void>(cudaGetDevice(&(*comm)->device));
    return Answer("ncclCommInitRankConfig", *comm);
  }
  static ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const bool busy = current_->never_done || (comm->busy > 0 && comm->busy-- > 0);
    *error = busy ? ncclInProgress : comm->rank == 1 ? current_->later : ncclSuccess;
    return Answer("ncclCommGetAsyncError", comm);
  }
  static ncclResult_t CommAbort(ncclComm_t comm) {
    EXPECT_GT(current_->depth_, 0) << "one device's end may wait for another's";
    std::erase_if(current_->comms_, [&](const auto& other) { return other.get() == comm; });
    return ncclSuccess;
  }
  static ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                           ncclScalarResidence_t residence, ncclComm_t comm) {
    EXPECT_EQ(type, ncclFloat32);
    EXPECT_EQ(residence, ncclScalarHostImmediate);
    EXPECT_TRUE(comm->ops.empty()) << "left behind";
    comm->ops[comm->next_op] = *static_cast<const float*>(scalar);
    *op = static_cast<ncclRedOp_t>(comm->next_op++);
    return Answer("ncclRedOpCreatePreMulSum", comm);
  }
  static ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    EXPECT_EQ(comm->ops.erase(op), 1u);
    return Answer("ncclRedOpDestroy", comm);
  }
  static ncclResult_t GroupStart() {
    ++current_->depth_;
    return Answer("ncclGroupStart", nullptr);
  }
  static ncclResult_t Reduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                             int root, ncclComm_t comm, cudaStream_t stream) {
    EXPECT_EQ(type, ncclFloat32);
    EXPECT_GT(current_->depth_, 0);
    EXPECT_EQ(comm->busy, 0) << "called before it was done with the last call";
    EXPECT_EQ(DeviceOf(stream), comm->device);
    EXPECT_EQ(comm->ops.count(op), 1u);
    current_->asked_.push_back(
        {static_cast<const float*>(from), static_cast<float*>(to), count, comm->ops[op], root, comm, stream});
    return Answer("ncclReduce", comm);
  }
  static ncclResult_t GroupEnd() {
    const ncclResult_t answer = Answer("ncclGroupEnd", nullptr);
    if (--current_->depth_ > 0) return answer;
    const std::vector<Call> asked = std::exchange(current_->asked_, {});
    if (answer != ncclSuccess || asked.empty()) return answer == ncclSuccess ? ncclInProgress : answer;
    if (asked.size() % current_->comms_.size() != 0) return ncclInvalidUsage;  // not all ranks
    for (size_t i = 0; i < asked.size(); i += current_->comms_.size()) {
      current_->Add(std::vector<Call>(asked.begin() + static_cast<int64_t>(i),
                                      asked.begin() + static_cast<int64_t>(i + current_->comms_.size())));
    }
    ++current_->groups;
    return ncclInProgress;
  }

  // Executes calls that all ranks have made. The results of the other ranks are undefined, so it overwrites
  // them.
  void Add(const std::vector<Call>& calls) {
    const Call& first = calls.front();
    reductions.push_back({first.root, first.count});
    std::vector<float> sum(first.count);
    for (const Call& call : calls) {
      EXPECT_EQ(call.root, first.root);
      EXPECT_EQ(call.count, first.count);
      for (size_t i = 0; i < call.count; ++i) sum[i] += call.weight * call.from[i];
      call.comm->busy = questions;
      if (stalls) Stall(call.stream);
    }
    if (wrong) sum.back() += 1;
    for (const Call& call : calls) {
      for (size_t i = 0; i < call.count; ++i) call.to[i] = call.comm->rank == call.root ? sum[i] : -1e30f;
    }
  }

  static inline FakeNccl* current_ = nullptr;
  int depth_ = 0;
  std::vector<Call> asked_;
  std::vector<std::unique_ptr<ncclComm>> comms_;
};

}  // namespace cairn::cuda_on_cpu
