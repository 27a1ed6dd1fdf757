#include "nn/layers/attention/rotary.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/rotary.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

double PositiveNumber(const char* field, double absent, ConfigReader& config) {
  const double number = config.Number(field, absent);
  if (!(number > 0)) config.Fail(field, absl::StrCat(number, " is not above 0"));
  return number;
}

class RotaryEmbeddingLayer final : public Layer {
 public:
  RotaryEmbeddingLayer(std::string name, RotaryConfig config)
      : Layer(std::move(name), "RotaryEmbedding"), config_(config) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const Shape& input = inputs[0];
    if (input.rank() >= 2 && input[input.rank() - 1] % 2 == 0) return input;
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", input.ToString(), " is not a sequence of vectors with an even number of elements"));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kDecodes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t width = input.shape[input.shape.rank() - 1];
    kernels::RotaryParams rotary = {.input = input, .frequencies = config_.Frequencies(width)};
    if (params.decoding != nullptr) {
      rotary.first = params.decoding->first;
      rotary.steps = params.decoding->length;
    }
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeRotary(rotary));
    return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    const int64_t width = input[input.rank() - 1], vectors = input.num_elements() / input[0] / width;
    const std::string rotated =
        RotaryInOnnx(onnx.ChannelsLast(inputs[0]), input[0], vectors, config_.Frequencies(width), onnx);
    std::vector<int64_t> extents = {-1};
    for (const int64_t extent : input.dims()) extents.push_back(extent);
    return onnx.FromChannelsLast(onnx.Add("Reshape", {rotated, onnx.Ints("shape", std::move(extents))}),
                                 input);
  }

 private:
  const RotaryConfig config_;
};

}  // namespace

RotaryConfig RotaryConfig::Read(ConfigReader& config) {
  const RotaryConfig read = {
      .max_wavelength = PositiveNumber("max_wavelength", 10000, config),
      .scaling_factor = PositiveNumber("scaling_factor", 1, config),
      .denominator = config.Raw("denominator_dim").is_null() ? 0 : config.PositiveInt("denominator_dim")};
  config.Refuse("rope_type", "linear");
  config.Refuse("sequence_axis", 1);
  config.Refuse("feature_axis", -1);
  // Options of another rope_type.
  config.Ignore({"beta_fast", "beta_slow", "original_max_position_embeddings", "truncate"});
  return read;
}

std::vector<double> RotaryConfig::Frequencies(int64_t width) const {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < width; i += 2) {
    const double exponent =
        static_cast<double>(i) / static_cast<double>(denominator > 0 ? denominator : width);
    frequencies.push_back(std::pow(max_wavelength, -exponent) / scaling_factor);
  }
  return frequencies;
}

// Llama 3.1 divides low frequencies by a factor, keeps high ones, and interpolates between them.
std::vector<double> ReadLlamaFrequencies(int64_t width, ConfigReader& config) {
  const RotaryConfig base = {.max_wavelength = PositiveNumber("rope_max_wavelength", 10000, config)};
  config.Refuse("rope_position_scaling_factor", 1);  // keras_hub 0.32 does not use it, other versions do
  std::vector<double> frequencies = base.Frequencies(width);
  constexpr const char* kFields[] = {"rope_frequency_adjustment_factor", "rope_low_freq_factor",
                                     "rope_high_freq_factor", "rope_pretraining_sequence_length"};
  double values[4] = {};
  int given = 0;
  for (size_t i = 0; i < 4; ++i) {
    if (config.Raw(kFields[i]).is_null()) continue;
    values[i] = PositiveNumber(kFields[i], 1, config);
    ++given;
  }
  if (given == 0) return frequencies;
  const auto [adjustment, low, high, length] = std::tuple(values[0], values[1], values[2], values[3]);
  if (given < 4 || high <= low) {
    config.Fail(kFields[0],
                "needs rope_low_freq_factor, a higher rope_high_freq_factor and "
                "rope_pretraining_sequence_length");
    return frequencies;
  }
  for (double& frequency : frequencies) {
    const double turns = length * frequency / (2 * std::numbers::pi);
    const double smooth = (turns - low) / (high - low);
    if (turns < low) {
      frequency /= adjustment;
    } else if (turns <= high) {
      frequency *= (1 - smooth) / adjustment + smooth;
    }
  }
  return frequencies;
}

std::string RotaryInOnnx(const std::string& x, int64_t steps, int64_t vectors,
                         const std::vector<double>& frequencies, OnnxBuilder& onnx) {
  const auto half = static_cast<int64_t>(frequencies.size()), width = 2 * half;
  const std::vector<float> factors =
      kernels::RotaryFactors({.input = {.shape = {1, steps, vectors, width}}, .frequencies = frequencies});
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  const std::string cosines = onnx.Floats("cosines", {steps, 1, half}, {factors.begin(), middle}),
                    sines = onnx.Floats("sines", {steps, 1, half}, {middle, factors.end()});
  const std::string by_vectors = onnx.Add("Reshape", {x, onnx.Ints("vectors", {-1, steps, vectors, width})});
  const std::string axis = onnx.Ints("last", {3});
  const auto part = [&](int64_t begin) {
    return onnx.Add("Slice",
                    {by_vectors, onnx.Ints("begin", {begin}), onnx.Ints("end", {begin + half}), axis});
  };
  const std::string a = part(0), b = part(half);
  const auto times = [&](const std::string& left, const std::string& right) {
    return onnx.Add("Mul", {left, right});
  };
  const std::string first = onnx.Add("Sub", {times(a, cosines), times(b, sines)}),
                    second = onnx.Add("Add", {times(b, cosines), times(a, sines)});
  const std::string rotated = onnx.Add("Concat", {first, second}, {{"axis", int64_t{3}}});
  return onnx.Add("Reshape", {rotated, onnx.Ints("rows", {-1, steps, vectors * width})});
}

std::unique_ptr<Layer> MakeRotaryEmbedding(std::string name, ConfigReader& config) {
  return std::make_unique<RotaryEmbeddingLayer>(std::move(name), RotaryConfig::Read(config));
}

}  // namespace cairn::nn
