// Hashing: ids of strings and integers by a hash, without a vocabulary.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids/id_map.h"
#include "nn/layers/id_layer.h"
#include "nn/layers/layers.h"
#include "nn/layers/salt.h"

namespace cairn::nn {

std::unique_ptr<Layer> MakeHashing(std::string name, ConfigReader& config) {
  const int64_t bins = config.PositiveInt("num_bins");
  HashedIds ids = {.layer = IdLayer::What(name, "Hashing"),
                   .hash = {.buckets = bins, .salt = ReadSalt(config)}};
  const nlohmann::json& mask = config.Raw("mask_value");
  if (mask.is_string()) {
    ids.mask_text = mask.get<std::string>();
  } else if (mask.is_number_integer()) {
    ids.mask_integer = mask.get<int64_t>();
  } else if (!mask.is_null()) {
    config.Fail("mask_value", absl::StrCat("expected a string, an integer or null, got ", mask.dump()));
  }
  // As in Keras, a single bin has no room for one of the mask.
  if (bins == 1) ids.mask_text = std::nullopt, ids.mask_integer = std::nullopt;
  if (ids.has_mask()) --ids.hash.buckets;
  const std::string mode = ReadOutputMode("int", /*allows_int=*/true, /*allows_tf_idf=*/false, config);
  config.Bool("sparse", false);  // how Keras stores the same numbers
  std::optional<IdEncoding> encoding;
  if (mode != "int") {
    encoding = IdEncoding{.mode = ModeOf(mode), .depth = bins};
    CheckDepth("num_bins", bins, config);
  }
  return std::make_unique<IdLayer>(
      IdLayer::Parts{std::move(name), "Hashing", MakeHashedIds(std::move(ids)), std::move(encoding)});
}

}  // namespace cairn::nn
