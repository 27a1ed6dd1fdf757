// Texts about the status of servers, shared by /statusz and `cairn status`.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/v1/inspector.pb.h"
#include "common/core/metrics.h"

namespace cairn::monitor {

// The names of enum values without their common prefix, in lower case: "ready", "live".
std::string NameOf(v1::State state);
std::string NameOf(v1::MemberState state);
std::string NameOf(v1::Mode mode);  // "sync"

// The quantile `part` of the staleness of the accepted gradients; "16+" at the end of the histogram, "-" if
// there are none.
std::string StalenessQuantile(const v1::Counters& counters, double part);
// The quantile `part` of the values, interpolated linearly within its bucket. NaN if there are no values.
double QuantileOf(const Distribution& distribution, double part);

// "97 %"; "-" if `all` is 0.
std::string ShareOf(int64_t part, int64_t all);
// "17 (4.2 %), -3 (1.1 %)"; "-" if there are none.
std::string HottestOf(const google::protobuf::RepeatedPtrField<v1::HotRow>& hottest);

// The worker whose gradients usually come last: "worker/1, last in 71 % of the rounds, 12.3 ms behind the
// first on average". Empty if there is no such worker. It must have been last in 75 % of at least 20 rounds,
// or in more than twice its share of them.
std::string StragglerOf(const v1::ServerStatus& status);

// One sentence on what is trained, which tasks are being waited for, and what has failed.
std::string HeadlineOf(const v1::ServerStatus& status);

}  // namespace cairn::monitor
