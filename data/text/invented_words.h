// Invented words, of which synthetic texts consist.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/core/random.h"

namespace cairn::data {

// `count` distinct words of one to four syllables, each of a consonant and a vowel: "na", "jodikolu". `count` is at
// most 20,000.
std::vector<std::string> InventWords(Random& random, size_t count);

}  // namespace cairn::data
