// Functions of keras.ops that change shapes, or compute along axes.
//
// Their axes count the batch, which is axis 0 and has no extent in a Shape: axis i of the function is extent i - 1.
#include "nn/functions/axes.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// [extent of `shape`] whether its axis is among `axes`.
std::vector<bool> FindAxes(const std::vector<int64_t>& axes, int64_t all, FunctionSteps& steps) {
  std::vector<bool> found(static_cast<size_t>(all - 1));
  if (found.empty()) {
    steps.Fail("axis", "the input has no axis but the batch");
    return found;
  }
  for (const int64_t axis : axes) {
    auto&& at = found[static_cast<size_t>(AxisOf(axis, all, "axis", steps) - 1)];
    if (at) steps.Fail("axis", absl::StrCat("[", absl::StrJoin(axes, ","), "] has an axis twice"));
    at = true;
  }
  return found;
}

// The axes of the latest output, from 0 on.
std::vector<int64_t> AllAxes(const FunctionSteps& steps) {
  std::vector<int64_t> axes(static_cast<size_t>(AxesOf(steps.shape())));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// `order` [axis of the output] is an axis of the input; both count the batch.
void Transpose(const std::vector<int64_t>& order, absl::string_view field, FunctionSteps& steps) {
  if (order.empty() || order[0] != 0) return steps.Fail(field, "axis 0, the batch, must stay the first");
  if (order == AllAxes(steps)) return;
  steps.Add("Permute", {{"dims", std::vector<int64_t>(order.begin() + 1, order.end())}});
}

// Reduces the axes whose extents are marked by `reduced`: they come first, as the steps of a sequence of all others.
void ReduceSteps(const AxesReduction& reduction, const std::vector<bool>& reduced, FunctionSteps& steps) {
  const Shape input = steps.shape();
  std::vector<int64_t> order = {0}, kept_axes, output;
  int64_t places = 1, kept = 1;
  for (int i = 0; i < input.rank(); ++i) {
    const bool is_reduced = reduced[static_cast<size_t>(i)];
    (is_reduced ? order : kept_axes).push_back(i + 1);
    (is_reduced ? places : kept) *= input[i];
    if (!is_reduced || reduction.keep_dims) output.push_back(is_reduced ? 1 : input[i]);
  }
  order.insert(order.end(), kept_axes.begin(), kept_axes.end());
  Transpose(order, "axis", steps);
  if (input.rank() != 2 || kept_axes.size() != 1) steps.Reshape({places, kept});
  steps.Add(absl::StrCat(reduction.option.layer, "1D"), json::object());
  if (output.size() != 1) steps.Reshape(output);
}

}  // namespace

std::vector<int64_t> ExtentsOf(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

int64_t AxesOf(const Shape& shape) {
  return shape.rank() + 1;
}

int64_t ReadAxis(absl::string_view field, ConfigReader& config, int64_t absent) {
  const std::vector<int64_t> axes = config.Ints(field, {{absent}});
  if (axes.size() == 1) return axes[0];
  config.Fail(field, absl::StrCat("[", absl::StrJoin(axes, ","), "]: only one axis is supported"));
  return absent;
}

std::vector<int64_t> ReadReducedAxes(ConfigReader& config) {
  if (!config.Raw("axis").is_null()) return config.Ints("axis");
  config.Fail("axis", "null reduces the batch too, which is not supported: name the other axes");
  return {-1};
}

void Reduce(const AxesReduction& reduction, FunctionSteps& steps) {
  const Shape input = steps.shape();
  const std::vector<bool> reduced = FindAxes(reduction.axes, AxesOf(input), steps);
  if (absl::c_count(reduced, true) == 0) return steps.Fail("axis", "no axis is reduced");
  if (reduction.option.negated) steps.Add("Rescaling", {{"scale", -1}});
  // All but the channels of a sequence, an image or a volume.
  const bool is_spatial = reduced.size() >= 2 && reduced.size() <= 4 && !reduced.back() &&
                          absl::c_count(reduced, true) + 1 == static_cast<int64_t>(reduced.size());
  if (is_spatial) {
    steps.Add(absl::StrCat(reduction.option.layer, reduced.size() - 1, "D"),
              {{"keepdims", reduction.keep_dims}});
  } else {
    ReduceSteps(reduction, reduced, steps);
  }
  if (reduction.option.negated) steps.Add("Rescaling", {{"scale", -1}});
}

FunctionBody ReadConcatenate(const FunctionOption&, ConfigReader& config) {
  return [axis = ReadAxis("axis", config, -1)](FunctionSteps& steps) {
    const int64_t counted = AxisOf(axis, AxesOf(steps.InputShape()), "axis", steps);
    if (steps.num_inputs() == 1) return;
    std::vector<int> inputs;
    for (size_t i = 0; i < steps.num_inputs(); ++i) inputs.push_back(FunctionSteps::Input(i));
    steps.Add("Concatenate", {{"axis", counted}}, std::move(inputs));
  };
}

FunctionBody ReadExpandDims(const FunctionOption&, ConfigReader& config) {
  return [axes = config.Ints("axis")](FunctionSteps& steps) {
    const Shape& input = steps.InputShape();
    const std::vector<bool> inserted =
        FindAxes(axes, AxesOf(input) + static_cast<int64_t>(axes.size()), steps);
    std::vector<int64_t> extents;
    int next = 0;
    for (const bool is_new : inserted) extents.push_back(is_new || next >= input.rank() ? 1 : input[next++]);
    if (!axes.empty()) steps.Reshape(extents);
  };
}

// Dot multiplies along the last axis of both.
FunctionBody ReadMatmul(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) {
    const Shape &first = steps.InputShape(0), &second = steps.InputShape(1);
    const int rank = first.rank();
    if (rank < 2 || second.rank() != rank) {
      return steps.Fail("inputs", absl::StrCat(first.ToString(), " and ", second.ToString(),
                                               ": only matrices for each example are supported, with as "
                                               "many axes in both; use Dot, EinsumDense or einsum"));
    }
    if (!absl::c_equal(first.dims().first(static_cast<size_t>(rank - 2)),
                       second.dims().first(static_cast<size_t>(rank - 2))) ||
        first[rank - 1] != second[rank - 2]) {
      return steps.Fail("inputs",
                        absl::StrCat("no product of ", first.ToString(), " and ", second.ToString(),
                                     ": expected [..., n, k] and [..., k, m], with the same first axes"));
    }
    std::vector<int64_t> turned;
    for (int axis = 1; axis <= rank; ++axis) turned.push_back(axis);
    std::swap(turned[turned.size() - 2], turned.back());
    const int columns = steps.Add("Permute", {{"dims", turned}}, {FunctionSteps::Input(1)});
    steps.Add("Dot", {{"axes", -1}, {"batch_axes", rank - 1}}, {FunctionSteps::Input(0), columns});
  };
}

FunctionBody ReadMoveaxis(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> sources = config.Ints("source"), destinations = config.Ints("destination");
  if (sources.size() != destinations.size())
    config.Fail("destination", absl::StrCat("expected ", sources.size(), " axes, as in source"));
  return [sources, destinations](FunctionSteps& steps) {
    std::vector<int64_t> rest = AllAxes(steps), order(rest.size(), -1);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto all = static_cast<int64_t>(order.size());
      const int64_t from = AxisOf(sources[i], all, "source", steps),
                    to = AxisOf(destinations[i], all, "destination", steps);
      if (!absl::c_linear_search(rest, from) || order[static_cast<size_t>(to)] >= 0)
        return steps.Fail("source", "an axis is moved twice");
      order[static_cast<size_t>(to)] = from;
      rest.erase(absl::c_find(rest, from));
    }
    auto next = rest.begin();
    for (int64_t& axis : order) {
      if (axis < 0) axis = *next++;
    }
    Transpose(order, "destination", steps);
  };
}

FunctionBody ReadPad(const FunctionOption&, ConfigReader& config) {
  config.Refuse("mode", "constant");
  const json widths = config.Raw("pad_width");
  const auto is_pair = [](const json& pair) {
    return pair.is_array() && pair.size() == 2 &&
           absl::c_all_of(pair, [](const json& width) { return width.is_number_unsigned(); });
  };
  if (!widths.is_array() || !absl::c_all_of(widths, is_pair))
    config.Fail("pad_width", absl::StrCat("expected a pair of numbers for each axis, got ", widths.dump()));
  return [widths](FunctionSteps& steps) {
    const int rank = steps.InputShape().rank();
    const json none = {0, 0};
    if (widths.size() != static_cast<size_t>(rank + 1) || widths.front() != none || widths.back() != none ||
        rank < 2 || rank > 4) {
      return steps.Fail("pad_width", absl::StrCat(widths.dump(), " of input ", steps.InputShape().ToString(),
                                                  ": only axes between the batch and the last axis can be "
                                                  "padded, 1 to 3 of them"));
    }
    const json padding(json::array_t(widths.begin() + 1, widths.end() - 1));
    steps.Add(absl::StrCat("ZeroPadding", rank - 1, "D"), {{"padding", rank == 2 ? padding[0] : padding}});
  };
}

FunctionBody ReadPool(const FunctionOption& option, ConfigReader& config) {
  json layer_config = json::object();
  for (const char* const field : {"pool_size", "strides", "padding", "data_format"})
    layer_config[field] = config.Raw(field);
  return [layer = option.layer, layer_config](FunctionSteps& steps) {
    const int axes = steps.InputShape().rank() - 1;
    if (axes < 1 || axes > 3) {
      return steps.Fail("inputs", absl::StrCat(steps.InputShape().ToString(),
                                               " is not a sequence, an image or a volume with channels"));
    }
    steps.Add(absl::StrCat(layer, axes, "D"), layer_config);
  };
}

FunctionBody ReadReduction(const FunctionOption& option, ConfigReader& config) {
  config.RefuseUnlessNull({"initial"});
  const bool keep_dims = config.Bool("keepdims", false);
  const AxesReduction reduction = {.axes = ReadReducedAxes(config), .keep_dims = keep_dims, .option = option};
  return [reduction](FunctionSteps& steps) { Reduce(reduction, steps); };
}

FunctionBody ReadRepeat(const FunctionOption&, ConfigReader& config) {
  const int64_t repeats = config.PositiveInt("repeats");
  if (config.Raw("axis").is_null()) config.Fail("axis", "null flattens the batch, which is not supported");
  return [repeats, axis = ReadAxis("axis", config, 1)](FunctionSteps& steps) {
    const int rank = steps.InputShape().rank();
    const int64_t counted = AxisOf(axis, rank + 1, "axis", steps);
    if (rank < 2 || rank > 4 || counted == rank) {
      return steps.Fail("axis", absl::StrCat(axis, " of input ", steps.InputShape().ToString(),
                                             ": only steps, or places of an image or a volume, can be "
                                             "repeated; use RepeatVector"));
    }
    std::vector<int64_t> size(static_cast<size_t>(rank - 1), 1);
    size[static_cast<size_t>(counted - 1)] = repeats;
    steps.Add(absl::StrCat("UpSampling", rank - 1, "D"), {{"size", rank == 2 ? json(repeats) : json(size)}});
  };
}

FunctionBody ReadReshape(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> newshape = config.Ints("newshape");
  if (newshape.empty() || newshape[0] != -1) {
    config.Fail("newshape", absl::StrCat("[", absl::StrJoin(newshape, ","),
                                         "]: expected -1, for the batch, and the extents of the other axes"));
    return nullptr;
  }
  const std::vector<int64_t> target(newshape.begin() + 1, newshape.end());
  if (absl::c_any_of(target, [](int64_t extent) { return extent < 1; })) {
    config.Fail("newshape", absl::StrCat("[", absl::StrJoin(newshape, ","),
                                         "]: expected positive extents after that of the batch"));
  }
  return [target](FunctionSteps& steps) {
    const Shape& input = steps.InputShape();
    if (target != ExtentsOf(input)) steps.Reshape(target);
  };
}

FunctionBody ReadResize(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> size = config.PositiveInts("size", 2);
  const std::string interpolation = config.Choice("interpolation", {"nearest", "bilinear"}, "bilinear");
  for (const char* const field : {"antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio"})
    config.Refuse(field, false);
  config.Refuse("data_format", "channels_last");
  config.Ignore({"fill_mode", "fill_value"});  // of pad_to_aspect_ratio
  return [size, interpolation](FunctionSteps& steps) {
    const Shape& input = steps.InputShape();
    if (input.rank() != 3 || size[0] % input[0] != 0 || size[1] % input[1] != 0) {
      return steps.Fail("size", absl::StrCat("[", absl::StrJoin(size, ","), "] of input ", input.ToString(),
                                             ": only images, and multiples of their size, are supported"));
    }
    steps.Add("UpSampling2D",
              {{"size", {size[0] / input[0], size[1] / input[1]}}, {"interpolation", interpolation}});
  };
}

FunctionBody ReadSoftmax(const FunctionOption&, ConfigReader& config) {
  if (config.Raw("axis").is_null() && config.Has("axis"))
    config.Fail("axis", "null normalizes over the batch, which is not supported");
  return [axis = ReadAxis("axis", config, -1)](FunctionSteps& steps) {
    std::vector<int64_t> order = AllAxes(steps);
    std::swap(order[static_cast<size_t>(AxisOf(axis, AxesOf(steps.InputShape()), "axis", steps))],
              order.back());
    Transpose(order, "axis", steps);
    steps.Add("Softmax", json::object());
    Transpose(order, "axis", steps);
  };
}

FunctionBody ReadSqueeze(const FunctionOption&, ConfigReader& config) {
  const bool all = config.Raw("axis").is_null();
  return [all, axes = config.Ints("axis", {{}})](FunctionSteps& steps) {
    const Shape& input = steps.InputShape();
    const std::vector<bool> named = FindAxes(axes, AxesOf(input), steps);
    std::vector<int64_t> extents;
    for (int i = 0; i < input.rank(); ++i) {
      const bool removed = all ? input[i] == 1 : named[static_cast<size_t>(i)];
      if (!removed) extents.push_back(input[i]);
      if (removed && input[i] != 1)
        return steps.Fail("axis", absl::StrCat("axis ", i + 1, " has the extent ", input[i], ", not 1"));
    }
    if (extents != ExtentsOf(input)) steps.Reshape(extents);
  };
}

FunctionBody ReadStack(const FunctionOption&, ConfigReader& config) {
  return [axis = ReadAxis("axis", config, 0)](FunctionSteps& steps) {
    std::vector<int64_t> extents = ExtentsOf(steps.InputShape());
    const int64_t counted = AxisOf(axis, AxesOf(steps.InputShape()) + 1, "axis", steps);
    extents.insert(extents.begin() + std::min<int64_t>(counted - 1, steps.InputShape().rank()), 1);
    std::vector<int> layers;
    for (size_t i = 0; i < steps.num_inputs(); ++i) {
      if (steps.InputShape(i) != steps.InputShape()) {
        return steps.Fail("inputs", absl::StrCat(steps.InputShape().ToString(), " and ",
                                                 steps.InputShape(i).ToString(), " have different shapes"));
      }
      layers.push_back(steps.Add("Reshape", {{"target_shape", extents}}, {FunctionSteps::Input(i)}));
    }
    if (layers.size() > 1) steps.Add("Concatenate", {{"axis", counted}}, std::move(layers));
  };
}

FunctionBody ReadSwapaxes(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> first = config.Ints("axis1"), second = config.Ints("axis2");
  if (first.size() != 1 || second.size() != 1) {
    config.Fail("axis2", "expected two axes");
    return nullptr;
  }
  return [first = first[0], second = second[0]](FunctionSteps& steps) {
    std::vector<int64_t> order = AllAxes(steps);
    const auto all = static_cast<int64_t>(order.size());
    std::swap(order[static_cast<size_t>(AxisOf(first, all, "axis1", steps))],
              order[static_cast<size_t>(AxisOf(second, all, "axis2", steps))]);
    Transpose(order, "axis1", steps);
  };
}

FunctionBody ReadTranspose(const FunctionOption&, ConfigReader& config) {
  if (config.Raw("axes").is_null()) {
    config.Fail("axes", "null moves the batch, which is not supported: list the axes, 0 first");
    return nullptr;
  }
  return [axes = config.Ints("axes")](FunctionSteps& steps) {
    const auto all = static_cast<int64_t>(AllAxes(steps).size());
    std::vector<int64_t> order;
    for (const int64_t axis : axes) order.push_back(axis < 0 ? axis + all : axis);
    if (static_cast<int64_t>(order.size()) != all) {
      return steps.Fail("axes", absl::StrCat("[", absl::StrJoin(axes, ","), "] does not fit input ",
                                             steps.InputShape().ToString(), " with its batch"));
    }
    Transpose(order, "axes", steps);
  };
}

}  // namespace cairn::nn
