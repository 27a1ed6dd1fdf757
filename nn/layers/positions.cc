// PositionEmbedding and SinePositionEncoding of keras_hub: a vector for each position of a sequence, whatever the
// sequence contains. The vectors of a batch are looked up in a table, like those of ids.
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

int64_t StepsOf(const Shape& example) {
  return example[example.rank() - 2];
}
int64_t WidthOf(const Shape& example) {
  return example[example.rank() - 1];
}

absl::Status CheckSequence(const Shape& input) {
  if (input.rank() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", input.ToString(), " is not a sequence of vectors, [length,width]"));
}

// y [..., steps, width] = row `step` of a table, which is a variable or constant.
class PositionsOp final : public LayerOp {
 public:
  // `constant` [steps, width]; empty: the table is the variable [rows, width].
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const LayerOpParams& params, int64_t rows,
                                                         const std::vector<float>& constant,
                                                         kernels::Device& device) {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t width = WidthOf(input.shape), steps = StepsOf(input.shape),
                  vectors = input.shape.num_elements() / width;
    std::unique_ptr<PositionsOp> made(new PositionsOp(device));
    CAIRN_ASSIGN_OR_RETURN(made->lookup_,
                           device.ops().MakeEmbedding({.indices = vectors,
                                                       .rows = rows,
                                                       .width = width,
                                                       .index_type = kernels::ElementType::kInt32,
                                                       .what = "positions"}));
    made->output_ = made->lookup_->output().WithShape(input.shape);
    made->input_floats_ = input.num_floats();
    made->width_ = width;
    if (params.decoding != nullptr) made->first_ = params.decoding->first;
    std::vector<int32_t> positions(static_cast<size_t>(vectors));
    for (int64_t i = 0; i < vectors; ++i) positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % steps);
    CAIRN_ASSIGN_OR_RETURN(made->positions_, device.Allocate(vectors, "positions"));
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(positions.data(), made->positions_->data(),
                                              vectors * static_cast<int64_t>(sizeof(int32_t))));
    if (!constant.empty()) {
      const auto floats = static_cast<int64_t>(constant.size());
      CAIRN_ASSIGN_OR_RETURN(made->table_, device.Allocate(floats, "encodings of positions"));
      CAIRN_RETURN_IF_ERROR(device.CopyToDevice(constant.data(), made->table_->data(),
                                                floats * static_cast<int64_t>(sizeof(float))));
    }
    if (params.needs_input_gradients) {
      CAIRN_ASSIGN_OR_RETURN(made->zeros_, device.Allocate(made->input_floats_, "gradient of positions"));
    }
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    return made;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  bool ignores_inputs() const override { return true; }
  absl::Status Forward(const ForwardArgs& args) override {
    const float* const table = table_ == nullptr ? args.variables[0] : table_->data();
    return lookup_->Forward(positions_->data(), table + (first_ == nullptr ? 0 : *first_ * width_), nullptr,
                            args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (table_ == nullptr) {
      CAIRN_RETURN_IF_ERROR(lookup_->Backward(positions_->data(), args.variables[0], args.output,
                                              args.output_gradient, nullptr, args.gradients[0], nullptr));
    }
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return device_.CopyOnDevice(zeros_->data(), args.input_gradients[0], input_floats_);
  }

 private:
  explicit PositionsOp(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  std::unique_ptr<kernels::LinearOp> lookup_;
  kernels::TensorDesc output_;
  std::unique_ptr<kernels::DeviceMemory> positions_;  // int32, of all vectors of the batch
  std::unique_ptr<kernels::DeviceMemory> table_;      // null: the table is the variable
  std::unique_ptr<kernels::DeviceMemory> zeros_;
  int64_t input_floats_ = 0, width_ = 0;
  const int64_t* first_ = nullptr;  // where the number of the first step is read; null: 0
};

// The first `steps` rows of `table`, for every example of `x`.
OnnxValue PositionsInOnnx(OnnxValue x, const std::string& rows, OnnxBuilder& onnx) {
  return onnx.FromChannelsLast(onnx.Add("Expand", {rows, onnx.Add("Shape", {onnx.ChannelsLast(x)})}),
                               onnx.ShapeOf(x));
}

class PositionEmbeddingLayer final : public Layer {
 public:
  PositionEmbeddingLayer(std::string name, int64_t length, InitializerSpec initializer, bool passes_mask)
      : Layer(std::move(name), "PositionEmbedding"),
        length_(length),
        initializer_(initializer),
        passes_mask_(passes_mask) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSequence(inputs[0]));
    if (StepsOf(inputs[0]) <= length_) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat("input ", inputs[0].ToString(), " has more than ", length_,
                                                   " positions, sequence_length"));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const int64_t width = WidthOf(inputs[0]);
    return {{.name = "embeddings",
             .shape = {length_, width},
             .initializer = ResolveFan(initializer_, {length_, width})}};
  }
  MaskUse mask_use() const override { return passes_mask_ ? MaskUse::kPasses : MaskUse::kDrops; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return inputs[0].rank() == 2 ? StepUse::kDecodes : StepUse::kMixes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return PositionsOp::Create(params, length_, {}, device);
  }
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    std::string rows = onnx.Weights(variables[0]);
    if (const int64_t steps = StepsOf(onnx.ShapeOf(inputs[0])); steps < length_) {
      rows = onnx.Add("Slice",
                      {rows, onnx.Ints("first", {0}), onnx.Ints("steps", {steps}), onnx.Ints("axis", {0})});
    }
    return PositionsInOnnx(inputs[0], rows, onnx);
  }

 private:
  const int64_t length_;
  const InitializerSpec initializer_;
  const bool passes_mask_;  // in a TokenAndPositionEmbedding
};

// The encoding of Vaswani et al., "Attention is all you need", 2017, section 3.5, with sines at even elements.
class SinePositionEncodingLayer final : public Layer {
 public:
  SinePositionEncodingLayer(std::string name, double max_wavelength)
      : Layer(std::move(name), "SinePositionEncoding"), max_wavelength_(max_wavelength) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSequence(inputs[0]));
    return inputs[0];
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return inputs[0].rank() == 2 ? StepUse::kDecodes : StepUse::kMixes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    const int64_t steps = params.decoding == nullptr ? StepsOf(input) : params.decoding->length;
    return PositionsOp::Create(params, steps, Table(steps, WidthOf(input)), device);
  }
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    return PositionsInOnnx(
        inputs[0],
        onnx.Floats("encodings", {StepsOf(input), WidthOf(input)}, Table(StepsOf(input), WidthOf(input))),
        onnx);
  }

 private:
  std::vector<float> Table(int64_t steps, int64_t width) const {
    std::vector<float> table;
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t i = 0; i < width; ++i) {
        const double exponent = static_cast<double>(i / 2 * 2) / static_cast<double>(width);
        const double angle = static_cast<double>(step) * std::pow(1 / max_wavelength_, exponent);
        table.push_back(static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
    }
    return table;
  }

  const double max_wavelength_;
};

}  // namespace

std::unique_ptr<Layer> MakePositionEmbedding(std::string name, ConfigReader& config) {
  const int64_t length = config.PositiveInt("sequence_length");
  const InitializerSpec initializer = config.Initializer("initializer", "glorot_uniform");
  return std::make_unique<PositionEmbeddingLayer>(std::move(name), length, initializer,
                                                  config.Bool("passes_mask", false));
}

std::unique_ptr<Layer> MakeSinePositionEncoding(std::string name, ConfigReader& config) {
  const double max_wavelength = config.Number("max_wavelength", 10000);
  if (!(max_wavelength > 0)) config.Fail("max_wavelength", absl::StrCat(max_wavelength, " is not above 0"));
  return std::make_unique<SinePositionEncodingLayer>(std::move(name), max_wavelength);
}

}  // namespace cairn::nn
