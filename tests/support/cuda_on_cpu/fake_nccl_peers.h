// NCCL between threads that each stand for a process with one rank. A call completes when all ranks have made
// theirs, so it hangs if one of them does not. Only one may exist at a time; any thread may call it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/core/mutex.h"
#include "tests/support/cuda_on_cpu/fake_nccl.h"

namespace cairn::cuda_on_cpu {

class FakeNcclPeers {
 public:
  FakeNcclPeers() { current_ = this; }
  ~FakeNcclPeers() {
    EXPECT_EQ(communicators(), 0) << "left behind";
    current_ = nullptr;
  }
  FakeNcclPeers(const FakeNcclPeers&) = delete;
  FakeNcclPeers& operator=(const FakeNcclPeers&) = delete;

  kernels::cuda::NcclLibrary library() const {
    return {.get_version = &GetVersion,
            .get_unique_id = &GetUniqueId,
            .comm_init_rank_config = &CommInitRankConfig,
            .comm_get_async_error = &CommGetAsyncError,
            .comm_abort = &CommAbort,
            .get_error_string = [](ncclResult_t) { return "a fault"; },
            .get_last_error = [](ncclComm_t) { return "of the test"; },
            .red_op_create_pre_mul_sum = &RedOpCreatePreMulSum,
            .red_op_destroy = &RedOpDestroy,
            .all_reduce = &AllReduce};
  }
  // The same library with an older version.
  kernels::cuda::NcclLibrary older() const {
    auto older = library();
    older.get_version = [](int* version) {
      *version = 22703;
      return ncclSuccess;
    };
    return older;
  }

  struct Faults {
    std::string failing{};             // the call that fails on rank 1, or without a rank: "ncclAllReduce"
    bool never_done = false;           // no communicator comes about
    bool stalls = false;               // sums do not come to an end
    bool wrong = false;                // ... or come out wrong
    ncclResult_t later = ncclSuccess;  // what rank 1 says when asked for its state
  };
  void Set(Faults faults) {
    MutexLock lock(mutex_);
    faults_ = std::move(faults);
  }

  // Waits until so many ranks wait for the others in one sum.
  void AwaitWaiting(size_t ranks) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (waiting_ < ranks) ASSERT_TRUE(changed_.WaitUntil(mutex_, limit)) << waiting_ << " wait";
  }

  int communicators() const {
    MutexLock lock(mutex_);
    return static_cast<int>(comms_.size());
  }
  // The lengths of one group's sums in order, without trial sums, whose length is `trial`.
  std::vector<size_t> sums(size_t trial = 16 << 10) const {
    MutexLock lock(mutex_);
    std::vector<size_t> counts;
    for (const size_t count : sums_) {
      if (count != trial) counts.push_back(count);
    }
    return counts;
  }

 private:
  struct Call {
    const float* from;
    float* to;
    size_t count;
    float weight;
    cudaStream_t stream;
  };
  struct Group {
    int ranks = 0;
    std::map<int, const void*> members;        // [rank]
    std::map<int, std::map<int, Call>> asked;  // [number of the sum][rank] that are not done
  };
  struct Member {
    std::string group;
    int sums = 0;
    int pending = -1;  // the sum that is not done
  };

  ncclResult_t Answer(const char* call, ncclComm_t comm) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool fails = faults_.failing == call && (comm == nullptr || comm->rank == 1);
    return fails ? ncclUnhandledCudaError : ncclSuccess;
  }

  static ncclResult_t GetVersion(int* version) {
    *version = 22809;
    return ncclSuccess;
  }
  static ncclResult_t GetUniqueId(ncclUniqueId* id) {
    FakeNcclPeers& fake = *current_;
    MutexLock lock(fake.mutex_);
    *id = {};
    const std::string text = absl::StrCat("group ", ++fake.drawn_);
    std::memcpy(id->internal, text.data(), text.size());
    return fake.Answer("ncclGetUniqueId", nullptr);
  }
  static ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                         ncclConfig_t* config) {
    EXPECT_EQ(config->magic, 0xcafebeef);
    EXPECT_EQ(config->blocking, 0);
    EXPECT_LT(rank, ranks);
    FakeNcclPeers& fake = *current_;
    MutexLock lock(fake.mutex_);
    fake.comms_.push_back(std::make_unique<ncclComm>(ncclComm{.rank = rank}));
    *comm = fake.comms_.back().get();
    static_cast<void>(cudaGetDevice(&(*comm)->device));
    fake.members_[*comm] = {.group = id.internal};
    Group& group = fake.groups_[id.internal];
    group.ranks = ranks;
    EXPECT_TRUE(group.members.emplace(rank, *comm).second) << "a second rank " << rank;
    const ncclResult_t answer = fake.Answer("ncclCommInitRankConfig", *comm);
    return answer == ncclSuccess ? ncclInProgress : answer;
  }
  static ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    FakeNcclPeers& fake = *current_;
    MutexLock lock(fake.mutex_);
    const Member& member = fake.members_.at(comm);
    const Group& group = fake.groups_.at(member.group);
    const bool busy = fake.faults_.never_done || member.pending >= 0 ||
                      (member.sums == 0 && group.members.size() < static_cast<size_t>(group.ranks));
    *error = comm->rank == 1 && fake.faults_.later != ncclSuccess ? fake.faults_.later
             : busy                                               ? ncclInProgress
                                                                  : ncclSuccess;
    return fake.Answer("ncclCommGetAsyncError", comm);
  }
  static ncclResult_t CommAbort(ncclComm_t comm) {
    FakeNcclPeers& fake = *current_;
    MutexLock lock(fake.mutex_);
    Group& group = fake.groups_.at(fake.members_.at(comm).group);
    group.members.erase(comm->rank);
    for (auto& [number, calls] : group.asked) calls.erase(comm->rank);
    fake.members_.erase(comm);
    std::erase_if(fake.comms_, [&](const auto& other) { return other.get() == comm; });
    return ncclSuccess;
  }
  static ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                           ncclScalarResidence_t residence, ncclComm_t comm) {
    EXPECT_EQ(type, ncclFloat32);
    EXPECT_EQ(residence, ncclScalarHostImmediate);
    EXPECT_TRUE(comm->ops.empty()) << "left behind";
    comm->ops[comm->next_op] = *static_cast<const float*>(scalar);
    *op = static_cast<ncclRedOp_t>(comm->next_op++);
    MutexLock lock(current_->mutex_);
    return current_->Answer("ncclRedOpCreatePreMulSum", comm);
  }
  static ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    EXPECT_EQ(comm->ops.erase(op), 1u);
    return ncclSuccess;
  }
  static ncclResult_t AllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream) {
    EXPECT_EQ(type, ncclFloat32);
    EXPECT_EQ(DeviceOf(stream), comm->device);
    FakeNcclPeers& fake = *current_;
    MutexLock lock(fake.mutex_);
    Member& member = fake.members_.at(comm);
    EXPECT_EQ(member.pending, -1) << "called before it was done with the last call";
    if (const ncclResult_t answer = fake.Answer("ncclAllReduce", comm); answer != ncclSuccess) return answer;
    const float weight = op == ncclSum ? 1 : comm->ops.at(op);
    Group& group = fake.groups_.at(member.group);
    member.pending = member.sums++;
    auto& calls = group.asked[member.pending];
    calls[comm->rank] = {static_cast<const float*>(from), static_cast<float*>(to), count, weight, stream};
    const bool all = calls.size() == static_cast<size_t>(group.ranks);
    fake.waiting_ = all ? 0 : calls.size();
    fake.changed_.NotifyAll();
    if (all) fake.Add(group, member.pending);
    return ncclInProgress;
  }

  // Executes the calls of all ranks, in the order of the ranks.
  void Add(Group& group, int number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::map<int, Call> calls = std::move(group.asked[number]);
    group.asked.erase(number);
    std::vector<float> sum(calls.begin()->second.count);
    for (const auto& [rank, call] : calls) {
      EXPECT_EQ(call.count, sum.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += call.weight * call.from[i];
      if (faults_.stalls) Stall(call.stream);
    }
    if (faults_.wrong) sum.back() += 1;
    for (const auto& [rank, call] : calls) std::copy(sum.begin(), sum.end(), call.to);
    for (auto& [comm, member] : members_) {
      if (member.pending == number && &groups_.at(member.group) == &group) member.pending = -1;
    }
    sums_.push_back(sum.size());
  }

  static inline FakeNcclPeers* current_ = nullptr;
  mutable Mutex mutex_;
  CondVar changed_;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // in the sum that was asked for last
  Faults faults_ ABSL_GUARDED_BY(mutex_);
  int drawn_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<ncclComm>> comms_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, Member> members_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::cuda_on_cpu
