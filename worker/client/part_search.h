// Finds the server of one part of a job: chooses the place to ask next and interprets the answers. With
// ps_replication a part has two places, its home server and the server of its backup (`away`).
//
//   Connect first place ── serves it ──────────────────────────► found there
//     │
//   Connect other place ── serves it ──────────────────────────► found there
//     │    └── has the backup: Promote, Connect ── serves it ──► found there
//     │
//   first place has the backup: Promote, Connect ── serves it ─► found there
//     │
//     ├── a place has not answered ──► UNAVAILABLE or DEADLINE_EXCEEDED: search again later
//     └── both have answered ────────► the part is lost
//
// Performs no I/O and reads no clock: the caller makes the call that question() returns and passes its answer
// back, until no question is left. Connection calls real servers, the simulation its own. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"

namespace cairn::client {

// A call that got no answer: the same call may succeed later.
bool IsTransient(const absl::Status& status);

class PartSearch {
 public:
  // Which server of the part a client knows. Incarnation 0: none.
  struct Known {
    uint64_t incarnation = 0;
    int64_t generation = 0;  // of the job; a server that is still there keeps its incarnation in the next one
    int64_t epoch = 0;       // how often a backup has been promoted in that generation
    std::string epoch_seal{};  // ConnectResponse.epoch_seal, by which other servers believe the epoch

    // `other` has taken the place of this server.
    bool IsBefore(const Known& other) const;
  };
  struct Options {
    bool away = false;        // the place to ask first
    bool has_backup = false;  // there is another place
    Known known{};            // sent with each Connect
    bool only_known = false;  // accepts the known incarnation only; otherwise any server that has a job
  };
  struct Question {
    enum class Call { kConnect, kPromote };
    Call call = Call::kConnect;
    bool away = false;
    bool brief = false;  // another place may have the answer: use a short timeout
  };
  struct Found {
    v1::ConnectResponse response;
    bool away = false;

    // The server to remember; none for a backup before its promotion, since it may be replaced at any time.
    Known known() const;
  };

  explicit PartSearch(const Options& options) : options_(options) {}

  // The next call to make; none when the search is over.
  std::optional<Question> question() const;
  void OnConnected(absl::StatusOr<v1::ConnectResponse> response);
  void OnPromoted(const absl::Status& status);

  // After the last question. With only_known: ABORTED when the part is lost. Otherwise a lost part is found
  // at home, in whatever state that server is.
  const absl::StatusOr<Found>& result() const { return result_; }

 private:
  enum class Step { kFirst, kOther, kPromoteOther, kOtherAgain, kPromoteFirst, kFirstAgain, kOver };

  bool Serves(const absl::StatusOr<v1::ConnectResponse>& response) const;
  bool HasBackup(const absl::StatusOr<v1::ConnectResponse>& response) const;
  // The known server was created anew later than this one, so this backup is none of it.
  bool IsOfEarlierGeneration(const absl::StatusOr<v1::ConnectResponse>& response) const;
  void TryFirstBackup();
  void Finish(absl::StatusOr<Found> result);
  void FinishUnserved();

  const Options options_;
  Step step_ = Step::kFirst;
  absl::StatusOr<v1::ConnectResponse> first_, other_;
  absl::Status first_refusal_, other_refusal_;  // of Promote
  absl::StatusOr<Found> result_;
};

}  // namespace cairn::client
