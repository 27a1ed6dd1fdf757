// Digits that look written by hand, drawn by a program: a data set for machines that have no MNIST and no
// network.
//
// In MNIST's files and form (28x28 bytes, white ink on black), and far enough from a font that a network must
// learn: every digit has one to three ways to be written, and every example its own slant, size, pen, tremor
// and noise. The same seed draws the same bytes on every machine: the arithmetic is in integers.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/core/random.h"

namespace cairn::data {

inline constexpr int kDigitSide = 28;                             // pixels
using DigitImage = std::array<uint8_t, kDigitSide * kDigitSide>;  // [row, column], 255 is full ink

// Draws `digit`, 0 to 9, as the numbers that follow in `random` say.
DigitImage DrawDigit(int digit, Random& random);

// Writes train-images-idx3-ubyte, train-labels-idx1-ubyte and, unless `num_validation` is 0,
// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte into `directory`, which is made where it is missing.
// Example i does not depend on how many there are. INVALID_ARGUMENT for fewer than 1 or more than 10 million
// examples; the system's error.
absl::Status WriteSyntheticDigits(const std::string& directory, int64_t num_train, int64_t num_validation,
                                  uint64_t seed);

}  // namespace cairn::data
