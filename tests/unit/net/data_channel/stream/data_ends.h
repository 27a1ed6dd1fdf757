// Both ends of a DataStream in one process, over every transport, and receivers that record what arrives.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream.h"
#include "gtest/gtest.h"
#include "tests/support/data_sockets.h"

namespace cairn::net {

inline constexpr uint64_t kIncarnation = 7;

// A payload that may be used in place.
struct KeptPayload {
  std::shared_ptr<const void> owner;
  absl::Span<const char> bytes;
};

// Records what arrives. StandStill() blocks it until Open().
class Receiver final : public DataReceiver {
 public:
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    MutexLock lock(mutex_);
    header_.assign(header.begin(), header.end());
    return absl::MakeSpan(destination_).first(std::min(bytes, destination_.size()));
  }
  absl::Status Complete(Payload payload) override {
    MutexLock lock(mutex_);
    ++begun_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);  // until the test calls Open()
    std::string bytes(static_cast<size_t>(PayloadBytes(payload)), '\0');
    if (!destination_.empty() && payload.borrowed() == nullptr && payload.runs().size() == 1 &&
        payload.runs()[0].data() == destination_.data()) {
      ++in_place_;
    }
    CAIRN_RETURN_IF_ERROR(CopyPayload(payload, bytes.data()));
    if (payload.borrowed() != nullptr) {
      ++borrowed_;
      const auto kept = payload.borrowed()->Keep();
      if (kept.has_value() && kept->runs.size() == 1) kept_.push_back({kept->owner, kept->runs[0]});
    }
    messages_.emplace_back(std::exchange(header_, {}), std::move(bytes));
    by_.push_back(std::this_thread::get_id());
    changed_.NotifyAll();
    return answer_;
  }
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  bool OwesAnswer() override {
    MutexLock lock(mutex_);
    ++asked_;
    changed_.NotifyAll();
    return owes_answer_;
  }
  void OweAnswer(bool owes) {
    MutexLock lock(mutex_);
    owes_answer_ = owes;
  }
  // Waits, at most a minute, until OwesAnswer() has been called `times` times.
  bool AwaitAsked(int times) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (asked_ < times && changed_.WaitUntil(mutex_, deadline)) {
    }
    return asked_ >= times;
  }
  // Offers `bytes` of memory to payloads that arrive over the socket. It is used for those that fill it.
  void Offer(size_t bytes) {
    MutexLock lock(mutex_);
    destination_.resize(bytes);
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return end_.has_value();
  }
  int in_place() const {
    MutexLock lock(mutex_);
    return in_place_;
  }
  void StandStill() {
    MutexLock lock(mutex_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // Waits, at most a minute, for the first call of Complete().
  bool AwaitBegun() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (begun_ == 0 && changed_.WaitUntil(mutex_, deadline)) {
    }
    return begun_ > 0;
  }
  size_t messages() const {
    MutexLock lock(mutex_);
    return messages_.size();
  }
  // Prepares for another stream, after one has ended.
  void Forget() {
    MutexLock lock(mutex_);
    end_.reset();
    messages_.clear();
  }
  // [message] The thread that delivered it.
  std::vector<std::thread::id> by() const {
    MutexLock lock(mutex_);
    return by_;
  }
  int borrowed() const {
    MutexLock lock(mutex_);
    return borrowed_;
  }
  // The payloads of one run that may be used in place.
  std::vector<KeptPayload> kept() const {
    MutexLock lock(mutex_);
    return kept_;
  }
  void AnswerWith(absl::Status answer) {
    MutexLock lock(mutex_);
    answer_ = std::move(answer);
  }
  // Waits for `count` messages; empty if they have not arrived within a minute.
  std::vector<std::pair<std::string, std::string>> Await(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (messages_.size() < count && !end_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return messages_.size() < count ? std::vector<std::pair<std::string, std::string>>() : messages_;
  }
  // The status with which the stream ended; DEADLINE_EXCEEDED if it has not ended within a minute.
  absl::Status AwaitEnd() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (!end_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return end_.value_or(absl::DeadlineExceededError("the stream has not ended"));
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool owes_answer_ ABSL_GUARDED_BY(mutex_) = false;
  int borrowed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<KeptPayload> kept_ ABSL_GUARDED_BY(mutex_);
  int in_place_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<char> destination_ ABSL_GUARDED_BY(mutex_);
  std::string header_ ABSL_GUARDED_BY(mutex_);  // of the message that has begun
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> by_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// Large payloads that go over sockets are pinned, except with the *Copying kinds.
enum class Over { kTcp, kTcpCopying, kSocket, kSocketCopying, kRings, kBorrowing };

inline std::string NameOf(const testing::TestParamInfo<Over>& over) {
  constexpr const char* kNames[] = {"Tcp",           "TcpCopying",   "Socket",
                                    "SocketCopying", "SharedMemory", "Borrowing"};
  return kNames[static_cast<size_t>(over.param)];
}
inline const auto kAllWays = testing::Values(Over::kTcp, Over::kTcpCopying, Over::kSocket,
                                             Over::kSocketCopying, Over::kRings, Over::kBorrowing);

// Whether process_vm_readv(2) works; some containers forbid it.
inline bool MemoryCanBeRead() {
  static const uint64_t probe = 42;
  const auto pair = SocketPair().value();
  return PeerMemory::Open(pair.first.get(),
                          {.address = reinterpret_cast<uint64_t>(&probe), .value = probe}) != nullptr;
}

// Both ends of a stream.
class DataStreamTest : public testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    if (GetParam() == Over::kBorrowing && !MemoryCanBeRead())
      GTEST_SKIP() << "process_vm_readv is not permitted on this machine";
  }
  bool shared() const { return GetParam() > Over::kSocketCopying; }
  static bool pins() { return GetParam() == Over::kTcp || GetParam() == Over::kSocket; }
  static bool offers_memory() { return GetParam() == Over::kBorrowing; }
  static std::pair<FileDescriptor, FileDescriptor> Pair() {
    return GetParam() <= Over::kTcpCopying ? test::TcpPair() : SocketPair().value();
  }
  void Start(DataStream::Options server = {.incarnation = kIncarnation}) {
    auto [one, other] = Pair();
    server.offers_memory = offers_memory();
    server.pins = pins();
    server_ = DataStream::Accept(std::move(one), true, server, at_server_).value();
    EXPECT_TRUE(server_->Start().ok());
    client_ = DataStream::Connect(
                  std::move(other), shared(),
                  {.incarnation = kIncarnation, .offers_memory = offers_memory(), .pins = pins()}, at_client_)
                  .value();
    EXPECT_TRUE(client_->Start().ok());
  }
  // Starts the server's end only: the test plays the client, over the socket that is returned.
  FileDescriptor StartRaw(bool offers_memory = false) {
    auto [one, other] = Pair();
    server_ = DataStream::Accept(std::move(one), true,
                                 {.incarnation = kIncarnation, .offers_memory = offers_memory}, at_server_)
                  .value();
    EXPECT_TRUE(server_->Start().ok());
    return std::move(other);
  }

  Receiver at_server_, at_client_;  // outlive the streams
  std::unique_ptr<DataStream> server_, client_;
};
// Whether `owner` has `count` users, including the caller, within a minute.
template <typename T>
bool AwaitUses(const std::shared_ptr<T>& owner, long count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (owner.use_count() != count && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return owner.use_count() == count;
}

// Shared with the stream: its thread may still be in the system call that sent them when the other end has
// received them all.
inline std::shared_ptr<const std::vector<float>> Numbers(size_t count, float first) {
  const auto numbers = std::make_shared<std::vector<float>>(count);
  for (size_t i = 0; i < count; ++i) (*numbers)[i] = first + static_cast<float>(i);
  return numbers;
}

inline std::string TextOf(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

}  // namespace cairn::net
