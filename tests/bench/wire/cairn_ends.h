// Both ends of Cairn for a benchmark: real cairn-ps processes, and workers in this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/compressed_gradients.h"
#include "client/job_setup.h"
#include "client/training/training_client.h"
#include "client/transport/connection.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"

namespace cairn::bench {

// The cairn-ps in the folder of the program that was called by this name: argv[0].
std::string PsProgramBeside(const std::string& program);

// cairn-ps processes, killed with this object or with this process.
class PsProcesses {
 public:
  // `program`: the path of cairn-ps. Forks, so before this process has a second thread.
  static absl::StatusOr<std::unique_ptr<PsProcesses>> Start(const std::string& program, int count);
  ~PsProcesses();

  const std::vector<pid_t>& pids() const { return pids_; }
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<pid_t> pids_;
  std::vector<std::string> addresses_;
};

// A synchronous job of SGD.
struct BenchJob {
  v1::Job job;
  std::vector<net::VariableInfo> variables;
  int64_t elements = 0;
};
// `count` variables of `elements` each, a multiple of 256.
BenchJob EqualVariables(const PsProcesses& servers, int workers, int count, int64_t elements);

// [server]
absl::StatusOr<std::vector<std::unique_ptr<client::ServerStub>>> StubsTo(const PsProcesses& servers,
                                                                         const std::string& transport);
absl::StatusOr<std::unique_ptr<client::Connection>> Connect(const PsProcesses& servers,
                                                            const std::string& task,
                                                            const std::string& transport);

// Writes initial values, all 0, to servers that have none.
absl::Status Initialise(client::Connection& connection, const BenchJob& job);

// One worker that only transfers the requested values and gradients. Each of a job's workers must push once
// in each round, in its own thread. All gradients have the encoding that the job specifies for its first
// variable.
class WireWorker {
 public:
  static absl::StatusOr<std::unique_ptr<WireWorker>> Join(std::unique_ptr<client::Connection> connection,
                                                          const BenchJob& job, int worker);

  // Sends a gradient and waits for the update; the new values are not sent.
  absl::Status Push() { return Exchange(false); }
  absl::Status Pull();
  // As Push(), and receives the values of the update.
  absl::Status PushPull() { return Exchange(true); }

 private:
  WireWorker(std::unique_ptr<client::Connection> connection, client::LearntJob job, int worker,
             const BenchJob& bench);
  absl::Status Exchange(bool read_values);
  void SendGradient(int server, uint64_t request);

  const std::unique_ptr<client::Connection> connection_;
  const client::LearntJob job_;
  const int worker_;
  const int num_variables_;
  const v1::Encoding encoding_;  // of gradients
  net::SharedBuffer gradient_;
  AlignedBuffer values_;
  std::vector<AlignedBuffer> rooms_;                         // [server] for gradients in 16 bits
  std::unique_ptr<client::CompressedGradients> compressed_;  // null: they travel whole
  uint64_t incarnation_ = 0;
  int64_t step_ = 0;
  int64_t version_ = 0;
  std::vector<std::unique_ptr<client::ServerSession>> sessions_;  // [server]
};

}  // namespace cairn::bench
