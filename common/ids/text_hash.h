// The hashes of texts by which Keras' preprocessing layers choose ids. They equal TensorFlow's, bit by bit, so that a
// model has the ids with which it was made. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn {

// FarmHash's Fingerprint64 (https://github.com/google/farmhash), as in tf.strings.to_hash_bucket_fast.
uint64_t Fingerprint64(absl::string_view text);

// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012), as in
// tf.strings.to_hash_bucket_strong. `key`: the two words of the key.
uint64_t SipHash24(absl::string_view text, const std::array<uint64_t, 2>& key);

}  // namespace cairn
