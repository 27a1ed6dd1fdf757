// Discretization: the number of the interval that a value lies in.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ids/id_map.h"
#include "nn/layers/id_layer.h"
#include "nn/layers/layers.h"

namespace cairn::nn {

std::unique_ptr<Layer> MakeDiscretization(std::string name, ConfigReader& config) {
  config.Ignore({"num_bins", "epsilon"});  // for adapt()
  if (config.Raw("bin_boundaries").is_null()) {
    config.Fail(
        "bin_boundaries",
        "the layer has none: call adapt() before the model is saved, or give bin_boundaries; or run `cairn "
        "model adapt`, which finds them in a training set");
  }
  const std::vector<double> given = config.Numbers("bin_boundaries", {{0.0}});
  std::vector<float> bounds(given.begin(), given.end());
  if (!std::is_sorted(bounds.begin(), bounds.end()))
    config.Fail("bin_boundaries", "must be in ascending order");
  const std::string mode = ReadOutputMode("int", /*allows_int=*/true, /*allows_tf_idf=*/false, config);
  config.Bool("sparse", false);  // how Keras stores the same numbers
  std::optional<IdEncoding> encoding;
  if (mode != "int")
    encoding = IdEncoding{.mode = ModeOf(mode), .depth = static_cast<int64_t>(bounds.size()) + 1};
  auto map = MakeIntervals(IdLayer::What(name, "Discretization"), std::move(bounds));
  return std::make_unique<IdLayer>(
      IdLayer::Parts{std::move(name), "Discretization", std::move(map), std::move(encoding)});
}

}  // namespace cairn::nn
