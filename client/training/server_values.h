// A worker's copy of the values on the servers: those of one version, and a second buffer that the next ones
// arrive in, by a read or in the answers to a step's pushes.
//
// Owned by ServerSteps; used by its thread, except that pushes write to incoming() during a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "client/job_setup.h"
#include "client/transport/connection.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"
#include "common/memory/aligned_buffer.h"
#include "common/trace/trace.h"

namespace cairn::client {

class ServerValues {
 public:
  struct Options {
    int64_t size = 0;                // elements of all variables
    Duration timeout;                // for a read of one server
    TraceRecorder* trace = nullptr;  // may be null
  };
  // `connection` must outlive this object.
  ServerValues(Connection& connection, const Options& options);

  // Parallel to the model's variables.
  absl::Span<const float> current() const { return current_.span(); }
  // The buffer that the next values arrive in.
  absl::Span<float> incoming() { return incoming_.span(); }
  // Both buffers, for the lifetime of this object.
  std::array<absl::Span<const float>, 2> buffers() const { return {current_.span(), incoming_.span()}; }
  // [server] The version of current(); equal in a synchronous job.
  const std::vector<int64_t>& versions() const { return versions_; }

  // Reads all values into incoming() and makes them the current ones. `marker`: where in the round log, if
  // all servers share one; otherwise empty. Returns whether the job has made its last update, according to
  // ps/0. UNAVAILABLE if a stream broke, CANCELLED if the
  // connection is stopped; after a failure current() is unchanged.
  absl::StatusOr<bool> Read(const LearntJob& job, const std::string& marker, v1::Encoding encoding);
  // Pushes have filled incoming() with the values of `versions` [server]: makes them the current ones.
  void Adopt(std::vector<int64_t> versions);

 private:
  struct Reading {
    std::unique_ptr<PendingDone> done = std::make_unique<PendingDone>();
    std::unique_ptr<ServerSession> session;  // destroyed before `done`
  };
  absl::StatusOr<std::vector<Reading>> BeginReads(const LearntJob& job, const std::string& marker,
                                                  v1::Encoding encoding, const StopCheck& stopped);
  // Waits for the end of each read, [server]. `asked`: when they began, in nanoseconds; 0: not traced.
  absl::StatusOr<std::vector<v1::Done>> AwaitReads(std::vector<Reading>& readings, int64_t asked,
                                                   const StopCheck& stopped);
  // The values of this server were not sent, because they are those of the last read.
  void CopyUnchanged(const LearntJob& job, int server);

  Connection& connection_;
  const Options options_;
  AlignedBuffer current_, incoming_;
  std::vector<int64_t> versions_;  // [server]
  // [server] The edition of the values in current_ (ReadBegin.known_edition), if a read brought them;
  // otherwise 0.
  std::vector<uint64_t> editions_;
  v1::Encoding editions_encoding_ = v1::ENCODING_FLOAT32;  // the encoding of the read that brought them
};

}  // namespace cairn::client
