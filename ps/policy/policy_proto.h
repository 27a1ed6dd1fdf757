// The types of ps/policy as messages (follow.proto, session.proto, job.proto), and what the policies need to
// save and load their own messages (policy.proto).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/follow.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "optim/store/group_settings.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

v1::PushKey ToProto(const PushKey& key);
PushKey FromProto(const v1::PushKey& proto);

// Groups are listed in a message as v1::GroupSettings says: consecutive ones with equal settings share an entry.
// FromProto() ignores groups beyond kMaxGroups + 1.
google::protobuf::RepeatedPtrField<v1::GroupSettings> ToProto(absl::Span<const optim::GroupSettings> groups);
std::vector<optim::GroupSettings> FromProto(
    const google::protobuf::RepeatedPtrField<v1::GroupSettings>& groups);
v1::SkippedUpdates ToProto(const optim::SkippedUpdates& skipped);
absl::StatusOr<optim::SkippedUpdates> FromProto(const v1::SkippedUpdates& proto);
// INVALID_ARGUMENT, naming the group, for an invalid learning rate.
absl::Status CheckGroups(absl::Span<const optim::GroupSettings> groups);

// INVALID_ARGUMENT, quoting the gradient, if a field has an impossible value: a negative worker, version or
// number of examples, no incarnation or step, an invalid position, more examples than the weighted mean
// supports, or settings of groups that are invalid or not the chief's.
absl::Status CheckGradient(const Gradient& gradient);
v1::StagedGradient ToProto(const Gradient& gradient);
// Fails as CheckGradient() does.
absl::StatusOr<Gradient> FromProto(const v1::StagedGradient& proto);

v1::WorkItem ToProto(const WorkItem& work_item);
WorkItem FromProto(const v1::WorkItem& proto);
v1::DataPosition ToProto(const WorkPosition& position);
// Without WorkPosition::repeated.
WorkPosition FromProto(const v1::DataPosition& proto);

// The outcome that reports a refusal to the client.
v1::Outcome OutcomeOf(Refuse::Reason reason);

// --- Saved states ---
google::protobuf::Any Pack(const google::protobuf::Message& state);
// INVALID_ARGUMENT, naming both types, if `packed` contains another type of message.
absl::Status Unpack(const google::protobuf::Any& packed, google::protobuf::Message& state);
// Upper bound on saved versions, clocks, examples and log entries: no count reaches it, and the sum of two such
// numbers does not overflow.
inline constexpr int64_t kMaxCounted = int64_t{1} << 60;
// INVALID_ARGUMENT, naming `what`, for a negative number and beyond kMaxCounted.
absl::Status CheckCount(absl::string_view what, int64_t count);
// INVALID_ARGUMENT for a learning rate that is negative or not finite.
absl::Status CheckRate(float rate);
// INVALID_ARGUMENT unless 0 <= worker < most_workers.
absl::Status CheckWorker(int worker, int most_workers);

}  // namespace cairn::ps
