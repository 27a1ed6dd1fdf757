// The secrets of a job: draws and compares them, and seals the facts that a client carries from one server
// to another.
//
// A seal is the HMAC-SHA256 of a list of facts under a key that the servers of a job share. Without the key,
// a seal can neither be made nor changed to cover other facts. Pure functions, except DrawSecret();
// thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::net {

inline constexpr size_t kMinSealKeyBytes = 16;

// `bytes` random bytes.
std::string DrawSecret(size_t bytes);

// Lower-case hexadecimal.
std::string HexOf(absl::string_view bytes);

// Constant-time: strings of equal length take the same time wherever they differ.
bool SameSecret(absl::string_view a, absl::string_view b);

// A seal has 32 bytes. Different lists have different seals, even if their concatenations are equal.
std::string SealOf(absl::string_view key, absl::Span<const std::string> facts);
// False with a key of fewer than kMinSealKeyBytes.
bool SealHolds(absl::string_view key, absl::Span<const std::string> facts, absl::string_view seal);

}  // namespace cairn::net
