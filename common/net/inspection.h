// What servers tell of themselves, in the words that people read: shared by /statusz and `cairn status`.
#pragma once

#include <string>

#include "cairn/v1/inspector.pb.h"
#include "common/core/meters.h"

namespace cairn::net {

// "ready", "live": the enums' names without what they have in common, in lower case.
std::string NameOf(v1::State state);
std::string NameOf(v1::MemberState state);
std::string NameOf(v1::Mode mode);  // "sync"

// The staleness that `part` of the accepted gradients do not exceed; "16+" where the histogram ends, "-"
// without any.
std::string StalenessQuantile(const v1::Counters& counters, double part);
// The value that `part` of the values do not exceed, between the limits of its bucket in proportion. NaN
// without any.
double QuantileOf(const Distribution& distribution, double part);

// Which worker's gradients come last, and by how much: "worker/1, last in 71 % of the rounds, 12.3 ms behind
// the first on average". Empty when none stands out: that is, is last in more than twice its share of at
// least 20 rounds.
std::string StragglerOf(const v1::ServerStatus& status);

// A sentence: what trains, who waits for whom, what went wrong.
std::string HeadlineOf(const v1::ServerStatus& status);

}  // namespace cairn::net
