// Finds the server of one shard of a job: chooses the server to query next and interprets the answers. With
// ps_replication a shard has two hosts, its home server and the server of its backup (`away`).
//
//   Connect first host ─── serves it ──────────────────────────► found there
//     │
//   Connect other host ─── serves it ──────────────────────────► found there
//     │    └── has the backup: Promote, Connect ── serves it ──► found there
//     │
//   first host has the backup: Promote, Connect ─── serves it ─► found there
//     │
//     ├── a host has not answered ───► UNAVAILABLE or DEADLINE_EXCEEDED: search again later
//     └── both have answered ────────► the shard is lost
//
// Performs no I/O and reads no clock: the caller makes the call that question() returns and passes the answer
// back, until no question is left. Connection uses it with real servers, the simulation with simulated ones.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"

namespace cairn::client {

// Whether the call got no answer, so that the same call may succeed later.
bool IsTransient(const absl::Status& status);

class ShardSearch {
 public:
  // The server of the shard that a client knows. Incarnation 0: none.
  struct Known {
    uint64_t incarnation = 0;
    // The generation of the job. A server that survives a rollback keeps its incarnation in the next
    // generation.
    int64_t generation = 0;
    int64_t epoch = 0;  // the number of promotions in that generation
    // ConnectResponse.epoch_seal, which proves the epoch to other servers.
    std::string epoch_seal{};

    // Whether `other` has replaced this server.
    bool IsBefore(const Known& other) const;
  };
  struct Options {
    bool away = false;        // the host to query first
    bool has_backup = false;  // the shard has a second host
    Known known{};            // sent with each Connect
    bool only_known = false;  // accept the known incarnation only, not any server with a job
  };
  struct Question {
    enum class Call { kConnect, kPromote };
    Call call = Call::kConnect;
    bool away = false;
    bool brief = false;  // another host may have the answer: use a short timeout
  };
  struct Found {
    v1::ConnectResponse response;
    bool away = false;

    // The server to remember; none for a backup that has not been promoted, since it may be replaced at any
    // time.
    Known known() const;
  };

  explicit ShardSearch(const Options& options) : options_(options) {}

  // The next call to make; nullopt when the search is over.
  std::optional<Question> question() const;
  void OnConnected(absl::StatusOr<v1::ConnectResponse> response);
  void OnPromoted(const absl::Status& status);

  // Valid after the last question. With only_known: ABORTED if the shard is lost. Otherwise the result for a
  // lost shard is its home server, regardless of the server's state.
  const absl::StatusOr<Found>& result() const { return result_; }

 private:
  enum class Step { kFirst, kOther, kPromoteOther, kOtherAgain, kPromoteFirst, kFirstAgain, kOver };

  bool Serves(const absl::StatusOr<v1::ConnectResponse>& response) const;
  bool HasBackup(const absl::StatusOr<v1::ConnectResponse>& response) const;
  // Whether the answering server belongs to an earlier generation than the known one. Its backup is then not
  // a backup of the known server.
  bool IsOfEarlierGeneration(const absl::StatusOr<v1::ConnectResponse>& response) const;
  void TryFirstBackup();
  void Finish(absl::StatusOr<Found> result);
  void FinishUnserved();

  const Options options_;
  Step step_ = Step::kFirst;
  absl::StatusOr<v1::ConnectResponse> first_, other_;
  absl::Status first_refusal_, other_refusal_;  // the errors of Promote
  absl::StatusOr<Found> result_;
};

}  // namespace cairn::client
