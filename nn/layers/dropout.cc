// Dropout: in training, random elements become 0, and the others are scaled up to preserve the mean.
// SpatialDropout1D, 2D and 3D: the same for whole channels.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

// Dropout with a mask that has fewer elements than the input and is broadcast: whole axes are dropped
// together.
class BroadcastDropoutOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input, const Shape& noise,
                                                         float rate, uint64_t stream,
                                                         kernels::Device& device) {
    return Create(input, input, {.input = input.WithShape(noise), .rate = rate, .stream = stream}, device);
  }
  // With one element of the mask for each example. The input may have any layout.
  static absl::StatusOr<std::unique_ptr<LayerOp>> CreateOfExamples(const kernels::TensorDesc& input,
                                                                   float rate, uint64_t stream,
                                                                   kernels::Device& device) {
    const int64_t batch = input.shape[0];
    const int64_t elements =
        input.layout == kernels::Layout::kRowMajor ? input.shape.num_elements() : input.num_floats();
    return Create(input, input.WithShape({batch, elements / batch}),
                  {.input = input.WithShape({batch, 1}), .rate = rate, .stream = stream}, device);
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (!args.training) return device_.CopyOnDevice(args.inputs[0], args.output, output_.num_floats());
    CAIRN_RETURN_IF_ERROR(dropout_->Forward(ones_->data(), mask_->data()));
    return multiply_->Forward({args.inputs[0], mask_->data()}, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return multiply_->Forward({args.output_gradient, mask_->data()}, args.input_gradients[0]);
  }

 private:
  static absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> MakeOnes(const kernels::TensorDesc& desc,
                                                                         kernels::Device& device) {
    const std::vector<float> ones(static_cast<size_t>(desc.shape.num_elements()), 1.0f);
    CAIRN_ASSIGN_OR_RETURN(auto floats, device.Allocate(desc.shape.num_elements(), "dropout: ones"));
    CAIRN_RETURN_IF_ERROR(
        device.CopyToDevice(ones.data(), floats->data(), static_cast<int64_t>(ones.size() * sizeof(float))));
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    if (desc.is_plain()) return floats;
    CAIRN_ASSIGN_OR_RETURN(auto converted, device.Allocate(desc.num_floats(), "dropout: ones"));
    CAIRN_ASSIGN_OR_RETURN(auto convert, device.ops().MakeReorder({.shape = desc.shape}, desc));
    CAIRN_RETURN_IF_ERROR(convert->Run(floats->data(), converted->data()));
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    return converted;
  }

  // The mask, the input of `dropout`, is broadcast to `flat`, which describes the memory of `input`.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input,
                                                         const kernels::TensorDesc& flat,
                                                         const kernels::DropoutParams& dropout,
                                                         kernels::Device& device) {
    const kernels::TensorDesc& mask = dropout.input;
    std::unique_ptr<BroadcastDropoutOp> op(new BroadcastDropoutOp(input, device));
    CAIRN_ASSIGN_OR_RETURN(op->ones_, MakeOnes(mask, device));
    CAIRN_ASSIGN_OR_RETURN(op->mask_, device.Allocate(mask.num_floats(), "dropout: mask"));
    CAIRN_ASSIGN_OR_RETURN(op->dropout_, device.ops().MakeDropout(dropout));
    CAIRN_ASSIGN_OR_RETURN(
        op->multiply_,
        device.ops().MakeBroadcastMerge({.kind = kernels::MergeKind::kMultiply, .inputs = {flat, mask}}));
    return op;
  }

  BroadcastDropoutOp(kernels::TensorDesc output, kernels::Device& device)
      : output_(std::move(output)), device_(device) {}

  const kernels::TensorDesc output_;
  kernels::Device& device_;
  std::unique_ptr<kernels::DeviceMemory> ones_, mask_;
  std::unique_ptr<kernels::Dropout> dropout_;
  std::unique_ptr<kernels::NaryOp> multiply_;
};

class DropoutLayer : public Layer {
 public:
  // `noise` is the mask's shape, with the batch; 0 stands for null in Keras' noise_shape and means the
  // input's extent. Empty: the input's shape or, with `whole_examples`, one element for each example.
  DropoutLayer(std::string name, std::string class_name, float rate, std::vector<int64_t> noise,
               bool whole_examples = false)
      : Layer(std::move(name), std::move(class_name)),
        rate_(rate),
        noise_(std::move(noise)),
        whole_examples_(whole_examples) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (noise_.empty()) return inputs[0];
    const auto fits = [&](size_t axis) {
      return noise_[axis] <= 1 || noise_[axis] == inputs[0][static_cast<int>(axis) - 1];
    };
    bool valid = static_cast<int>(noise_.size()) == inputs[0].rank() + 1;
    for (size_t axis = 1; axis < noise_.size() && valid; ++axis) valid = fits(axis);
    if (valid) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat(
        "noise_shape: [", absl::StrJoin(noise_, ","),
        "], where 0 is the input's extent, does not broadcast to a batch of ", inputs[0].ToString()));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool differs_in_training() const override { return true; }
  // That of keras.applications is no layer that passes masks.
  MaskUse mask_use() const override { return whole_examples_ ? MaskUse::kDrops : MaskUse::kPasses; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return noise_.empty() || WholeExamples(); }

  StepUse step_use(absl::Span<const Shape> /*inputs*/, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(noise_.size() < 2 || noise_[1] <= 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    if (rate_ == 0) return std::make_unique<ViewOp>(input);
    const uint64_t stream = StreamOf(absl::StrCat("dropout/", name()));
    if (WholeExamples()) return BroadcastDropoutOp::CreateOfExamples(input, rate_, stream, device);
    if (!noise_.empty()) {
      Shape noise;
      for (size_t axis = 0; axis < noise_.size(); ++axis)
        noise.Append(noise_[axis] == 0 ? input.shape[static_cast<int>(axis)] : noise_[axis]);
      if (noise != input.shape) return BroadcastDropoutOp::Create(input, noise, rate_, stream, device);
    }
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeDropout({.input = input, .rate = rate_, .stream = stream}));
    return std::make_unique<DropoutOp>(input, std::move(op), device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 private:
  // Whether the mask has one element for each example.
  bool WholeExamples() const {
    return whole_examples_ || (noise_.size() > 1 && std::all_of(noise_.begin() + 1, noise_.end(),
                                                                [](int64_t n) { return n == 1; }));
  }

  const float rate_;
  const std::vector<int64_t> noise_;
  const bool whole_examples_;
};

// Reads the extents, with 0 for null. The batch's extent must be null: a mask is drawn for each example.
std::vector<int64_t> ReadNoiseShape(ConfigReader& config) {
  const nlohmann::json& value = config.Raw("noise_shape");
  if (value.is_null()) return {};
  std::vector<int64_t> noise;
  bool valid = value.is_array() && !value.empty();
  for (const nlohmann::json& extent : valid ? value : nlohmann::json::array()) {
    valid = valid && (extent.is_null() || (extent.is_number_integer() && extent >= 1 && extent < (1 << 30)));
    if (valid) noise.push_back(extent.is_null() ? 0 : extent.get<int64_t>());
  }
  if (!valid) {
    config.Fail("noise_shape",
                absl::StrCat("expected a shape with the batch, such as [null,1,64], got ", value.dump()));
  } else if (noise[0] != 0) {
    config.Fail("noise_shape",
                absl::StrCat(value.dump(), ": a mask for the batch as a whole, or for a batch of ", noise[0],
                             ", is not supported: its first entry must be null"));
  }
  return noise;
}

float ReadDropoutRate(ConfigReader& config) {
  const double rate = config.Number("rate");
  if (!(rate >= 0 && rate < 1)) config.Fail("rate", absl::StrCat(rate, " is not in [0, 1)"));
  config.Ignore({"seed"});  // the job's --seed is used
  return static_cast<float>(rate);
}

class SpatialDropoutLayer final : public DropoutLayer {
 public:
  // One choice for each channel, whatever the extents of the `axes` spatial axes.
  SpatialDropoutLayer(std::string name, std::string class_name, size_t axes, float rate)
      : DropoutLayer(std::move(name), std::move(class_name), rate, NoiseOf(axes)), axes_(axes) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], axes_));
    return inputs[0];
  }

 private:
  static std::vector<int64_t> NoiseOf(size_t axes) {
    std::vector<int64_t> noise(axes + 2, 1);
    noise.front() = noise.back() = 0;
    return noise;
  }

  const size_t axes_;
};

std::unique_ptr<Layer> MakeSpatialDropout(std::string name, const char* class_name, size_t axes,
                                          ConfigReader& config) {
  const float rate = ReadDropoutRate(config);
  config.Refuse("data_format", "channels_last");
  config.RefuseUnlessNull({"noise_shape"});  // Keras writes it, always null
  return std::make_unique<SpatialDropoutLayer>(std::move(name), class_name, axes, rate);
}

}  // namespace

std::unique_ptr<Layer> MakeDropout(std::string name, ConfigReader& config) {
  const float rate = ReadDropoutRate(config);
  return std::make_unique<DropoutLayer>(std::move(name), "Dropout", rate, ReadNoiseShape(config));
}

std::unique_ptr<Layer> MakeSpatialDropout1D(std::string name, ConfigReader& config) {
  return MakeSpatialDropout(std::move(name), "SpatialDropout1D", 1, config);
}

std::unique_ptr<Layer> MakeSpatialDropout2D(std::string name, ConfigReader& config) {
  return MakeSpatialDropout(std::move(name), "SpatialDropout2D", 2, config);
}

std::unique_ptr<Layer> MakeSpatialDropout3D(std::string name, ConfigReader& config) {
  return MakeSpatialDropout(std::move(name), "SpatialDropout3D", 3, config);
}

// StochasticDepth of keras.applications' ConvNeXt: whole examples become 0.
std::unique_ptr<Layer> MakeStochasticDepth(std::string name, ConfigReader& config) {
  const double rate = config.Number("drop_path_rate");
  if (!(rate >= 0 && rate < 1)) config.Fail("drop_path_rate", absl::StrCat(rate, " is not in [0, 1)"));
  return std::make_unique<DropoutLayer>(std::move(name), "StochasticDepth", static_cast<float>(rate),
                                        /*noise=*/std::vector<int64_t>(), /*whole_examples=*/true);
}

}  // namespace cairn::nn
