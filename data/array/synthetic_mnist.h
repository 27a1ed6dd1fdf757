// Synthetic MNIST: generated digits that look handwritten, for machines without MNIST or network access.
//
// They have MNIST's file format and form (28x28 bytes, white ink on black), and vary enough that a network
// must learn: every digit has one to three shapes, and every example its own slant, size, pen, tremor and
// noise. A seed gives the same bytes on every machine, since the arithmetic is in integers.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/core/random.h"

namespace cairn::data {

inline constexpr int kMnistSide = 28;                             // pixels
using DigitImage = std::array<uint8_t, kMnistSide * kMnistSide>;  // [row, column]; 255 is full ink

// Draws `digit`, 0 to 9, with variations drawn from `random`.
DigitImage DrawDigit(int digit, Random& random);

// Writes train-images-idx3-ubyte, train-labels-idx1-ubyte and, unless `num_validation` is 0,
// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte into `directory`, which is created if missing. Example i
// does not depend on the number of examples. INVALID_ARGUMENT for fewer than 1 or more than 10 million
// examples; otherwise the system's error.
absl::Status WriteSyntheticMnist(const std::string& directory, int64_t num_train, int64_t num_validation,
                                 uint64_t seed);

}  // namespace cairn::data
