// The key of a salted hash in the configs of Hashing, StringLookup and IntegerLookup.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// One integer stands for two equal ones. nullopt: no salt.
inline std::optional<std::array<uint64_t, 2>> ReadSalt(ConfigReader& config) {
  const nlohmann::json& salt = config.Raw("salt");
  if (salt.is_null()) return std::nullopt;
  // Negative numbers are the words with the same bits.
  const auto word = [](const nlohmann::json& number) {
    return number.is_number_unsigned() ? number.get<uint64_t>()
                                       : static_cast<uint64_t>(number.get<int64_t>());
  };
  if (salt.is_number_integer()) return std::array{word(salt), word(salt)};
  if (salt.is_array() && salt.size() == 2 && salt[0].is_number_integer() && salt[1].is_number_integer())
    return std::array{word(salt[0]), word(salt[1])};
  config.Fail("salt", absl::StrCat("expected an integer or two of them, got ", salt.dump()));
  return std::nullopt;
}

}  // namespace cairn::nn
