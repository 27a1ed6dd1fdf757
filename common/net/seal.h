// Secrets of a job: how they are drawn, compared, and used to seal what a client carries from one server to
// another.
//
// A seal is HMAC-SHA256 of a list of facts under a key that the servers of a job share. Whoever lacks the key
// can neither make a seal nor change what it is for. Pure functions but for DrawSecret(); any thread.
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

// Takes the same time wherever two strings of one length differ.
bool SameSecret(absl::string_view a, absl::string_view b);

// 32 bytes. Lists that differ have different seals, also where their concatenations are equal.
std::string SealOf(absl::string_view key, absl::Span<const std::string> facts);
// False with a key of fewer than kMinSealKeyBytes.
bool SealHolds(absl::string_view key, absl::Span<const std::string> facts, absl::string_view seal);

}  // namespace cairn::net
