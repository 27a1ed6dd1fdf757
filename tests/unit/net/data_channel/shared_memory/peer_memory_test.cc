#include "common/net/data_channel/shared_memory/peer_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/socket/socket.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

// Both ends are in this process.
class PeerMemoryTest : public testing::Test {
 protected:
  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  const uint64_t probe_ = 42;
  const std::unique_ptr<PeerMemory> memory_ =
      PeerMemory::Open(ends_.first.get(), {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_});
};

TEST_F(PeerMemoryTest, AnInvalidAddressAfterTheSenderClosedIsUnavailable) {
  ASSERT_NE(memory_, nullptr);
  const BorrowedRun gone = {.address = 64, .bytes = 8};
  char to[8];
  const absl::Span<char> place = to;
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kInvalidArgument);
  shutdown(ends_.second.get(), SHUT_RDWR);
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PeerMemoryTest, ManyRunsAreReadToManyPlaces) {
  ASSERT_NE(memory_, nullptr);
  std::vector<char> borrowed(10'000);
  for (size_t i = 0; i < borrowed.size(); ++i) borrowed[i] = static_cast<char>(i % 101);
  const auto address = reinterpret_cast<uint64_t>(borrowed.data());
  const BorrowedRun runs[] = {{address + 5'000, 5'000}, {address, 5'000}};
  std::vector<char> read(9'990);
  std::vector<absl::Span<char>> places;  // more than one system call accepts
  for (size_t begin = 0; begin < read.size(); begin += 3) places.push_back({read.data() + begin, 3});
  ASSERT_EQ(memory_->Read(runs, 7, places), absl::OkStatus());
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 4'993, borrowed.begin() + 5'007));
  EXPECT_TRUE(std::equal(read.begin() + 4'993, read.end(), borrowed.begin()));
  places.push_back({read.data(), 4});
  EXPECT_EQ(memory_->Read(runs, 7, places).code(), absl::StatusCode::kInvalidArgument);
}

// A process that connects and keeps `value` at probe_.address until End() kills it.
class PeerProcess {
 public:
  // Runs as user `uid`, if given. A child of the process also holds the socket, until the test is over.
  explicit PeerProcess(std::optional<uid_t> uid = std::nullopt) {
    const LocalListener listener = ListenLocally().value();
    static const uint64_t value = 42;
    pid_ = fork();
    if (pid_ == 0) {
      if (uid.has_value() && setuid(*uid) != 0) _exit(2);
      const FileDescriptor connected = ConnectLocally(listener.name).value();
      if (fork() == 0) {  // keeps the socket until the test is over
        char end;
        pollfd ended = {.fd = connected.get(), .events = POLLIN, .revents = 0};
        poll(&ended, 1, 60'000);
        (void)!read(connected.get(), &end, 1);
        _exit(0);
      }
      for (;;) pause();
    }
    for (int i = 0; i < 6000 && !socket_.valid(); ++i) {
      socket_ = AcceptLocally(listener.socket);
      if (!socket_.valid()) usleep(10'000);
    }
    probe_ = {.address = reinterpret_cast<uint64_t>(&value), .value = value};  // it was forked with the value
  }
  ~PeerProcess() { End(); }

  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::unique_ptr<PeerMemory> Open() const { return PeerMemory::Open(socket_.get(), probe_); }
  BorrowedRun run() const { return {.address = probe_.address, .bytes = sizeof probe_.value}; }

 private:
  pid_t pid_ = -1;
  FileDescriptor socket_;
  PeerMemory::Probe probe_;
};

TEST(PeerMemoryOfAProcessTest, IsNotReadAfterTheProcessEndedEvenIfItsSocketIsOpen) {
  PeerProcess peer;
  const auto memory = peer.Open();
  if (memory == nullptr) GTEST_SKIP() << "process_vm_readv is not permitted on this machine";
  uint64_t value = 0;
  const absl::Span<char> to(reinterpret_cast<char*>(&value), sizeof value);
  const BorrowedRun run = peer.run();
  EXPECT_EQ(memory->Read({&run, 1}, 0, {&to, 1}), absl::OkStatus());
  EXPECT_EQ(value, 42u);
  peer.End();
  // Read() reports that the process ended, even if the copy succeeded: another process may have its number by
  // then.
  EXPECT_EQ(memory->Read({&run, 1}, 0, {&to, 1}), OtherEndClosed());
}

TEST(PeerMemoryOfAProcessTest, MemoryOfAnotherUsersProcessIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may read another user's memory at all";
  EXPECT_EQ(PeerProcess(/*uid=*/65534).Open(), nullptr);
}

}  // namespace
}  // namespace cairn::net
