// Tables of events: what happens to a policy, and its decisions as text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

struct Event {
  enum Kind { kJoin, kLeave, kPush, kEnd } kind;
  int worker;
  uint64_t incarnation;
  int64_t step = 0;
  int64_t base_version = 0;
};

// Incarnation 1 unless the row says otherwise.
inline Event Join(int worker, uint64_t incarnation = 1) {
  return {Event::kJoin, worker, incarnation};
}
inline Event Leave(int worker, uint64_t incarnation = 1) {
  return {Event::kLeave, worker, incarnation};
}
inline Event End() {
  return {Event::kEnd, 0, 0};
}
struct PushArgs {
  int64_t step;
  int64_t base;
  uint64_t incarnation = 1;
};
inline Event Push(int worker, PushArgs args) {
  return {Event::kPush, worker, args.incarnation, args.step, args.base};
}

inline absl::string_view ShortName(Refuse::Reason reason) {
  switch (reason) {
    case Refuse::Reason::kStale:
      return "stale";
    case Refuse::Reason::kAhead:
      return "ahead";
    case Refuse::Reason::kNotAMember:
      return "not a member";
    case Refuse::Reason::kOldIncarnation:
      return "old incarnation";
    case Refuse::Reason::kSecondInRound:
      return "second in round";
    case Refuse::Reason::kFinished:
      return "finished";
  }
  return "?";
}

// "v1: 0 1; refuse 2: stale by 1": the version after an update and its contributors, or the worker refused.
inline std::string ToText(const std::vector<Decision>& decisions) {
  return absl::StrJoin(decisions, "; ", [](std::string* out, const Decision& decision) {
    if (const Apply* apply = std::get_if<Apply>(&decision)) {
      absl::StrAppend(out, "v", apply->version, ":");
      for (const Gradient& gradient : apply->contributors) absl::StrAppend(out, " ", gradient.key.worker);
      if (apply->staleness != 0) absl::StrAppend(out, " staleness ", apply->staleness);
      if (apply->deferred) absl::StrAppend(out, " deferred");
      return;
    }
    if (const Release* release = std::get_if<Release>(&decision)) {
      absl::StrAppend(out, "release ", release->key.worker);
      return;
    }
    const Refuse& refuse = std::get<Refuse>(decision);
    absl::StrAppend(out, "refuse ", refuse.key.worker, ": ", ShortName(refuse.reason));
    if (refuse.reason == Refuse::Reason::kStale) absl::StrAppend(out, " by ", refuse.staleness);
  });
}

inline std::vector<Decision> Tell(UpdatePolicy& policy, const Event& event) {
  switch (event.kind) {
    case Event::kJoin:
      return policy.OnJoin(event.worker, event.incarnation);
    case Event::kLeave:
      return policy.OnLeave(event.worker, event.incarnation);
    case Event::kPush:
      return policy.OnGradient(
          {{event.worker, event.incarnation, event.step}, event.base_version, /*examples=*/1});
    case Event::kEnd:
      return policy.OnEnd();
  }
  return {};
}

struct EventRow {
  Event event;
  std::string decisions;  // as ToText()
};

// Returns the policy after all rows, for further checks.
inline std::unique_ptr<UpdatePolicy> Play(const PolicyConfig& config, const std::vector<EventRow>& rows) {
  std::unique_ptr<UpdatePolicy> policy = MakePolicy(config).value();
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(ToText(Tell(*policy, rows[i].event)), rows[i].decisions) << "row " << i;
  }
  return policy;
}

}  // namespace cairn::ps
