// RandomFlip, RandomRotation, RandomTranslation, RandomZoom and RandomContrast: augmentation of images, in training.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

using Range = kernels::ImageWarpParams::Range;

// A layer without variables or gradients that changes images in training only.
class RandomImageLayer : public Layer {
 public:
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], 2));
    return inputs[0];
  }
  bool differs_in_training() const override { return true; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    if (params.needs_input_gradients) {
      return absl::UnimplementedError(
          absl::StrCat("layer '", name(), "' (", class_name(),
                       ") is behind layers with variables, to which it has no gradient: "
                       "put it before them"));
    }
    return MakeRandomOp(params.inputs[0], device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 protected:
  using Layer::Layer;
  virtual absl::StatusOr<std::unique_ptr<LayerOp>> MakeRandomOp(const kernels::TensorDesc& input,
                                                                kernels::Device& device) const = 0;
  uint64_t stream() const { return StreamOf(absl::StrCat("augmentation/", name())); }
};

class ImageWarpOp final : public LayerOp {
 public:
  ImageWarpOp(kernels::TensorDesc output, std::unique_ptr<kernels::ImageWarp> op, kernels::Device& device)
      : output_(std::move(output)), op_(std::move(op)), device_(device) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (args.training) return op_->Forward(args.inputs[0], args.output);
    return device_.CopyOnDevice(args.inputs[0], args.output, output_.num_floats());
  }
  absl::Status Backward(const BackwardArgs&) override { return absl::OkStatus(); }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::ImageWarp> op_;
  kernels::Device& device_;
};

class ImageWarpLayer final : public RandomImageLayer {
 public:
  // `params` without the input and the stream.
  ImageWarpLayer(std::string name, std::string class_name, kernels::ImageWarpParams params)
      : RandomImageLayer(std::move(name), std::move(class_name)), params_(std::move(params)) {}

 private:
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeRandomOp(const kernels::TensorDesc& input,
                                                        kernels::Device& device) const override {
    kernels::ImageWarpParams params = params_;
    params.input = input;
    params.stream = stream();
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeImageWarp(params));
    return std::make_unique<ImageWarpOp>(input, std::move(op), device);
  }

  const kernels::ImageWarpParams params_;
};

// y = (x - mean) * factor + mean, cut to the range of values, with the mean of each channel of an image and a factor
// for each image, composed of existing ops.
class ContrastOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& image,
                                                         const Range& factor, const Range& values,
                                                         uint64_t stream, kernels::Device& device) {
    const Shape& shape = image.shape;
    const kernels::TensorDesc mean = image.WithShape({shape[0], 1, 1, shape[3]}),
                              factors = image.WithShape({shape[0], 1, 1, 1});
    const auto merge = [&](kernels::MergeKind kind, const kernels::TensorDesc& other) {
      return device.ops().MakeBroadcastMerge({.kind = kind, .inputs = {image, other}});
    };
    const auto shift = [&](float offset) {
      return device.ops().MakeAffine({.input = image, .scale = {1}, .offset = {offset}});
    };
    std::unique_ptr<ContrastOp> op(new ContrastOp(image, device));
    CAIRN_ASSIGN_OR_RETURN(op->average_, device.ops().MakeGlobalPool(kernels::Pooling::kAverage, image));
    CAIRN_ASSIGN_OR_RETURN(op->draw_, device.ops().MakeNoise({.kind = kernels::NoiseKind::kUniform,
                                                              .input = factors,
                                                              .amount = factor.high - factor.low,
                                                              .low = factor.low,
                                                              .stream = stream}));
    CAIRN_ASSIGN_OR_RETURN(op->subtract_, merge(kernels::MergeKind::kSubtract, mean));
    CAIRN_ASSIGN_OR_RETURN(op->multiply_, merge(kernels::MergeKind::kMultiply, factors));
    CAIRN_ASSIGN_OR_RETURN(op->add_, merge(kernels::MergeKind::kAdd, mean));
    CAIRN_ASSIGN_OR_RETURN(op->from_lowest_, shift(-values.low));
    CAIRN_ASSIGN_OR_RETURN(op->cut_, device.ops().MakeActivation(image, {.kind = kernels::Activation::kRelu,
                                                                         .limit = values.high - values.low}));
    CAIRN_ASSIGN_OR_RETURN(op->to_lowest_, shift(values.low));
    CAIRN_ASSIGN_OR_RETURN(op->means_, device.Allocate(mean.num_floats(), "RandomContrast: means"));
    CAIRN_ASSIGN_OR_RETURN(op->factors_, device.Allocate(factors.num_floats(), "RandomContrast: factors"));
    for (auto* memory : {&op->first_, &op->second_}) {
      CAIRN_ASSIGN_OR_RETURN(*memory, device.Allocate(image.num_floats(), "RandomContrast"));
    }
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (!args.training) return device_.CopyOnDevice(args.inputs[0], args.output, output_.num_floats());
    float *const first = first_->data(), *const second = second_->data();
    CAIRN_RETURN_IF_ERROR(average_->Forward(args.inputs[0], means_->data()));
    CAIRN_RETURN_IF_ERROR(
        draw_->Forward(means_->data(), factors_->data()));  // the numbers do not depend on the means
    CAIRN_RETURN_IF_ERROR(subtract_->Forward({args.inputs[0], means_->data()}, first));
    CAIRN_RETURN_IF_ERROR(multiply_->Forward({first, factors_->data()}, second));
    CAIRN_RETURN_IF_ERROR(add_->Forward({second, means_->data()}, first));
    CAIRN_RETURN_IF_ERROR(from_lowest_->Forward(first, second));
    CAIRN_RETURN_IF_ERROR(cut_->Forward(second, first));
    return to_lowest_->Forward(first, args.output);
  }
  absl::Status Backward(const BackwardArgs&) override { return absl::OkStatus(); }

 private:
  ContrastOp(kernels::TensorDesc output, kernels::Device& device)
      : output_(std::move(output)), device_(device) {}

  const kernels::TensorDesc output_;
  kernels::Device& device_;
  std::unique_ptr<kernels::UnaryOp> average_, from_lowest_, cut_, to_lowest_;
  std::unique_ptr<kernels::Dropout> draw_;
  std::unique_ptr<kernels::NaryOp> subtract_, multiply_, add_;
  std::unique_ptr<kernels::DeviceMemory> means_, factors_, first_, second_;
};

class RandomContrastLayer final : public RandomImageLayer {
 public:
  RandomContrastLayer(std::string name, Range factor, Range values)
      : RandomImageLayer(std::move(name), "RandomContrast"), factor_(factor), values_(values) {}

 private:
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeRandomOp(const kernels::TensorDesc& input,
                                                        kernels::Device& device) const override {
    return ContrastOp::Create(input, factor_, values_, stream(), device);
  }

  const Range factor_, values_;
};

// Keras' factors: f means [-f, f].
Range ReadFactor(absl::string_view field, ConfigReader& config) {
  const std::vector<double> factor = config.Numbers(field);
  for (const double each : factor) {
    if (!(each >= -1 && each <= 1)) config.Fail(field, absl::StrCat(each, " is not in [-1, 1]"));
  }
  if (factor.size() == 1)
    return {static_cast<float>(-std::abs(factor[0])), static_cast<float>(std::abs(factor[0]))};
  if (factor.size() == 2) {
    const auto [low, high] = std::minmax(factor[0], factor[1]);
    return {static_cast<float>(low), static_cast<float>(high)};
  }
  config.Fail(field, "expected a number or two of them");
  return {};
}

kernels::ImageWarpParams ReadFill(ConfigReader& config) {
  const std::string fill = config.Choice("fill_mode", {"constant", "nearest", "reflect", "wrap"}, "reflect");
  const std::string interpolation = config.Choice("interpolation", {"nearest", "bilinear"}, "bilinear");
  config.Ignore({"seed"});  // the job's --seed is used
  config.Refuse("data_format", "channels_last");
  kernels::ImageWarpParams params;
  params.fill = fill == "constant"  ? kernels::FillMode::kConstant
                : fill == "nearest" ? kernels::FillMode::kNearest
                : fill == "reflect" ? kernels::FillMode::kReflect
                                    : kernels::FillMode::kWrap;
  params.fill_value = static_cast<float>(config.Number("fill_value", 0));
  if (interpolation == "nearest") params.interpolation = kernels::Interpolation::kNearest;
  return params;
}

}  // namespace

std::unique_ptr<Layer> MakeRandomContrast(std::string name, ConfigReader& config) {
  // Keras writes two numbers, below and above 1. It takes a single one as the upper of them.
  const std::vector<double> factor = config.Numbers("factor");
  if (factor.empty() || factor.size() > 2) config.Fail("factor", "expected a number or two of them");
  const double below = factor.size() == 2 ? std::min(factor[0], factor[1]) : 0;
  const double above = factor.size() == 2 ? std::max(factor[0], factor[1]) : factor.empty() ? 0 : factor[0];
  if (!(below >= 0 && below <= 1 && above >= 0 && above <= 1))
    config.Fail("factor", "expected numbers from 0 to 1");
  const std::vector<double> values = config.Numbers("value_range", {{0, 255}});
  const bool valid = values.size() == 2 && values[0] < values[1];
  if (!valid) config.Fail("value_range", "expected two numbers, the smaller one first");
  config.Ignore({"seed"});  // the job's --seed is used
  config.Refuse("data_format", "channels_last");
  return std::make_unique<RandomContrastLayer>(
      std::move(name), Range{static_cast<float>(1 - below), static_cast<float>(1 + above)},
      valid ? Range{static_cast<float>(values[0]), static_cast<float>(values[1])} : Range{});
}

std::unique_ptr<Layer> MakeRandomFlip(std::string name, ConfigReader& config) {
  const std::string mode =
      config.Choice("mode", {"horizontal", "vertical", "horizontal_and_vertical"}, "horizontal_and_vertical");
  config.Ignore({"seed"});  // the job's --seed is used
  config.Refuse("data_format", "channels_last");
  kernels::ImageWarpParams params;
  params.flips_rows = mode != "horizontal";
  params.flips_columns = mode != "vertical";
  return std::make_unique<ImageWarpLayer>(std::move(name), "RandomFlip", std::move(params));
}

std::unique_ptr<Layer> MakeRandomRotation(std::string name, ConfigReader& config) {
  constexpr float kTurn = 6.2831853071795865f;  // factors are fractions of a full turn
  kernels::ImageWarpParams params = ReadFill(config);
  const Range turns = ReadFactor("factor", config);
  params.rotation = {turns.low * kTurn, turns.high * kTurn};
  return std::make_unique<ImageWarpLayer>(std::move(name), "RandomRotation", std::move(params));
}

std::unique_ptr<Layer> MakeRandomTranslation(std::string name, ConfigReader& config) {
  kernels::ImageWarpParams params = ReadFill(config);
  params.row_shift = ReadFactor("height_factor", config);
  params.column_shift = ReadFactor("width_factor", config);
  return std::make_unique<ImageWarpLayer>(std::move(name), "RandomTranslation", std::move(params));
}

std::unique_ptr<Layer> MakeRandomZoom(std::string name, ConfigReader& config) {
  kernels::ImageWarpParams params = ReadFill(config);
  params.row_zoom = ReadFactor("height_factor", config);
  params.keeps_proportions = config.Raw("width_factor").is_null();
  if (!params.keeps_proportions) params.column_zoom = ReadFactor("width_factor", config);
  return std::make_unique<ImageWarpLayer>(std::move(name), "RandomZoom", std::move(params));
}

}  // namespace cairn::nn
