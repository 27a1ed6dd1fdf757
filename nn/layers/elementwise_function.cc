// ElementwiseFunction: comparisons, logical functions, selections, maxima and minima of inputs that are broadcast, some
// of which may be constant arrays. Functions of keras.ops become such layers; no model file contains them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/broadcast.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

using kernels::Comparison;
using kernels::MergeKind;
using nlohmann::json;

struct FunctionRow {
  absl::string_view name;
  size_t inputs;
  std::variant<Comparison, MergeKind> kind;
  const char* onnx_op;
};
constexpr FunctionRow kFunctions[] = {
    {"equal", 2, Comparison::kEqual, "Equal"},
    {"not_equal", 2, Comparison::kNotEqual, "Equal"},  // and its negation
    {"greater", 2, Comparison::kGreater, "Greater"},
    {"greater_equal", 2, Comparison::kGreaterEqual, "GreaterOrEqual"},
    {"less", 2, Comparison::kLess, "Less"},
    {"less_equal", 2, Comparison::kLessEqual, "LessOrEqual"},
    {"logical_and", 2, Comparison::kAnd, "And"},
    {"logical_or", 2, Comparison::kOr, "Or"},
    {"logical_xor", 2, Comparison::kXor, "Xor"},
    {"maximum", 2, MergeKind::kMaximum, "Max"},
    {"minimum", 2, MergeKind::kMinimum, "Min"},
    {"where", 3, MergeKind::kSelect, "Where"},
};

bool IsLogical(Comparison kind) {
  return kind == Comparison::kAnd || kind == Comparison::kOr || kind == Comparison::kXor;
}

// An array in the place of an input, the same for every example.
struct ConstantInput {
  size_t input = 0;  // among all inputs
  Shape shape;       // without the batch
  std::vector<double> values;

  // Whether the values are int64, as which integers are compared with them.
  bool is_whole() const {
    constexpr double kLimit = 0x1p63;
    return absl::c_all_of(values, [](double v) { return v == std::floor(v) && std::fabs(v) < kLimit; });
  }
};

// Inserts the constants among what belongs to the tensors, in the order of all inputs.
template <typename Value, typename Make>
std::vector<Value> InsertAll(absl::Span<const Value> tensors, const std::vector<ConstantInput>& constants,
                             const Make& make) {
  std::vector<Value> all(tensors.begin(), tensors.end());
  for (size_t i = 0; i < constants.size(); ++i)
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(std::min(constants[i].input, all.size())), make(i));
  return all;
}

class ElementwiseOp final : public LayerOp {
 public:
  struct Parts {
    std::unique_ptr<kernels::NaryOp> op;
    std::vector<std::unique_ptr<kernels::DeviceMemory>> constants;  // [constant]
    bool has_gradient = true;
  };
  ElementwiseOp(Parts parts, const std::vector<ConstantInput>& constants)
      : parts_(std::move(parts)), inputs_(constants) {
    for (ConstantInput& input : inputs_) input.values.clear();
  }

  const kernels::TensorDesc& output() const override { return parts_.op->output(); }
  BackwardReads backward_reads() const override { return {.inputs = parts_.has_gradient, .output = false}; }
  absl::Status Forward(const ForwardArgs& args) override {
    return parts_.op->Forward(All(args.inputs), args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    const std::vector<float*> gradients = InsertAll(absl::Span<float* const>(args.input_gradients), inputs_,
                                                    [](size_t) -> float* { return nullptr; });
    return parts_.op->Backward(All(args.inputs), args.output_gradient, gradients);
  }

 private:
  std::vector<const float*> All(absl::Span<const float* const> tensors) const {
    return InsertAll(tensors, inputs_,
                     [this](size_t i) -> const float* { return parts_.constants[i]->data(); });
  }

  const Parts parts_;
  std::vector<ConstantInput> inputs_;  // [constant] where it is
};

class ElementwiseFunctionLayer final : public Layer {
 public:
  ElementwiseFunctionLayer(std::string name, const FunctionRow& function,
                           std::vector<ConstantInput> constants)
      : Layer(std::move(name), "ElementwiseFunction"),
        function_(function),
        constants_(std::move(constants)) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.empty() || inputs.size() + constants_.size() != function_.inputs) {
      return absl::InvalidArgumentError(absl::StrCat(function_.name, " takes ", function_.inputs,
                                                     " inputs, not ", inputs.size() + constants_.size()));
    }
    return kernels::BroadcastShape(
        InsertAll(inputs, constants_, [this](size_t i) { return constants_[i].shape; }));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool takes_integers() const override { return compares(); }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput> kinds) const override {
    const bool whole = absl::c_any_of(kinds, [](DecodedInput kind) { return kind != DecodedInput::kSteps; });
    if (whole || inputs[0].rank() < 1) return UseOfSteps(false);
    return UseOfSteps(absl::c_all_of(inputs,
                                     [&](const Shape& input) {
                                       return input.rank() == inputs[0].rank() && input[0] == inputs[0][0];
                                     }) &&
                      absl::c_all_of(constants_, [](const ConstantInput& c) {
                        return c.shape.rank() > 0 && c.shape[0] == 1;
                      }));
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    ElementwiseOp::Parts parts = {.op = nullptr, .constants = {}, .has_gradient = !compares()};
    const bool integers =
        absl::c_all_of(params.inputs, [](const kernels::TensorDesc& input) { return IsInteger(input.type); });
    std::vector<kernels::TensorDesc> descs;  // [constant]
    for (const ConstantInput& constant : constants_) {
      kernels::TensorDesc& desc = descs.emplace_back(kernels::TensorDesc{.shape = {1}});
      for (const int64_t extent : constant.shape.dims()) desc.shape.Append(extent);
      desc.type = !compares()                       ? params.inputs[0].type
                  : integers && constant.is_whole() ? DType::kInt64
                                                    : DType::kFloat32;
      CAIRN_ASSIGN_OR_RETURN(parts.constants.emplace_back(), Upload(constant, desc, device));
    }
    auto inputs = InsertAll(params.inputs, constants_, [&](size_t i) { return descs[i]; });
    absl::StatusOr<std::unique_ptr<kernels::NaryOp>> op =
        compares()
            ? device.ops().MakeComparison({.kind = std::get<Comparison>(function_.kind), .inputs = inputs})
            : device.ops().MakeBroadcastMerge(
                  {.kind = std::get<MergeKind>(function_.kind), .inputs = inputs});
    CAIRN_RETURN_IF_ERROR(op);
    parts.op = *std::move(op);
    return std::make_unique<ElementwiseOp>(std::move(parts), constants_);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::vector<Shape> shapes;
    for (const OnnxValue input : inputs) shapes.push_back(onnx.ShapeOf(input));
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    const bool integers =
        absl::c_all_of(inputs, [&](OnnxValue input) { return IsInteger(onnx.TypeOf(input)); }) &&
        absl::c_all_of(constants_, [](const ConstantInput& constant) { return constant.is_whole(); });
    std::vector<std::string> tensors;
    for (const OnnxValue input : inputs) {
      tensors.push_back(onnx.ChannelsLast(input));
      const DType type = integers ? DType::kInt64 : DType::kFloat32;
      if (onnx.TypeOf(input) != type) tensors.back() = onnx.Cast(tensors.back(), type);
    }
    std::vector<std::string> all = InsertAll(absl::MakeConstSpan(tensors), constants_, [&](size_t i) {
      return ConstantInOnnx(constants_[i], integers, onnx);
    });
    return onnx.FromChannelsLast(InOnnx(std::move(all), onnx), output);
  }

 private:
  bool compares() const { return std::holds_alternative<Comparison>(function_.kind); }

  std::string InOnnx(std::vector<std::string> inputs, OnnxBuilder& onnx) const {
    if (!compares()) {
      if (function_.inputs == 3) inputs[0] = onnx.Cast(inputs[0], DType::kBool);
      return onnx.Add(function_.onnx_op, std::move(inputs));
    }
    if (IsLogical(std::get<Comparison>(function_.kind)))
      for (std::string& input : inputs) input = onnx.Cast(input, DType::kBool);
    std::string holds = onnx.Add(function_.onnx_op, std::move(inputs));
    if (function_.kind == decltype(function_.kind)(Comparison::kNotEqual)) holds = onnx.Add("Not", {holds});
    return onnx.Cast(holds, DType::kFloat32);
  }

  static std::string ConstantInOnnx(const ConstantInput& constant, bool integers, OnnxBuilder& onnx) {
    if (!integers)
      return onnx.Floats("constant", constant.shape, {constant.values.begin(), constant.values.end()});
    const std::string flat = onnx.Ints("constant", {constant.values.begin(), constant.values.end()});
    if (constant.shape.num_elements() == 1) return flat;
    return onnx.Add("Reshape",
                    {flat, onnx.Ints("shape", {constant.shape.dims().begin(), constant.shape.dims().end()})});
  }

  // Numbers beyond those of float16 become its largest ones instead of infinite, so that a masked score of -1e9 does
  // not make a softmax NaN.
  static absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> Upload(const ConstantInput& constant,
                                                                       const kernels::TensorDesc& desc,
                                                                       kernels::Device& device) {
    constexpr double kLargestFloat16 = 65504;
    const auto make = [&](const kernels::TensorDesc& of) {
      return device.Allocate(of.num_floats(), "constants of a layer");
    };
    const auto copy = [&](const auto& values, float* to) -> absl::Status {
      CAIRN_RETURN_IF_ERROR(
          device.CopyToDevice(values.data(), to, static_cast<int64_t>(values.size() * sizeof(values[0]))));
      return device.Synchronize();
    };
    CAIRN_ASSIGN_OR_RETURN(auto memory, make(desc));
    if (desc.type == DType::kInt64) {
      CAIRN_RETURN_IF_ERROR(
          copy(std::vector<int64_t>(constant.values.begin(), constant.values.end()), memory->data()));
      return memory;
    }
    std::vector<float> floats;
    for (const double value : constant.values) {
      const bool clamps = desc.type == DType::kFloat16 && std::isfinite(value);
      floats.push_back(
          static_cast<float>(clamps ? std::clamp(value, -kLargestFloat16, kLargestFloat16) : value));
    }
    if (desc.type == DType::kFloat32) {
      CAIRN_RETURN_IF_ERROR(copy(floats, memory->data()));
      return memory;
    }
    const kernels::TensorDesc plain = {.shape = desc.shape};
    CAIRN_ASSIGN_OR_RETURN(const auto staged, make(plain));
    CAIRN_RETURN_IF_ERROR(copy(floats, staged->data()));
    CAIRN_ASSIGN_OR_RETURN(const auto convert, device.ops().MakeReorder(plain, desc));
    CAIRN_RETURN_IF_ERROR(convert->Run(staged->data(), memory->data()));
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    return memory;
  }

  const FunctionRow function_;
  const std::vector<ConstantInput> constants_;
};

// Reads {"input": 1, "shape": [1, 4], "values": [...]}.
std::optional<ConstantInput> ReadConstant(const json& written) {
  if (!written.is_object()) return std::nullopt;
  const json input = written.value("input", json()), shape = written.value("shape", json()),
             values = written.value("values", json());
  const auto is_count = [](const json& number) { return number.is_number_integer() && number >= 0; };
  const bool is_valid = is_count(input) && shape.is_array() && absl::c_all_of(shape, is_count) &&
                        values.is_array() &&
                        absl::c_all_of(values, [](const json& value) { return value.is_number(); });
  if (!is_valid) return std::nullopt;
  const auto checked = Shape::FromUntrusted(shape.get<std::vector<int64_t>>());
  if (!checked.ok() || checked->num_elements() != static_cast<int64_t>(values.size())) return std::nullopt;
  return ConstantInput{
      .input = input.get<size_t>(), .shape = *checked, .values = values.get<std::vector<double>>()};
}

}  // namespace

std::unique_ptr<Layer> MakeElementwiseFunction(std::string name, ConfigReader& config) {
  const std::string wanted = config.String("function", "equal");
  const auto* found = absl::c_find_if(kFunctions, [&](const FunctionRow& row) { return row.name == wanted; });
  if (found == std::end(kFunctions)) {
    config.Fail("function", absl::StrCat("unknown function '", wanted, "'"));
    found = std::begin(kFunctions);
  }
  std::vector<ConstantInput> constants;
  const json written = config.Has("constants") ? config.Raw("constants") : json::array();
  if (!written.is_array()) config.Fail("constants", "expected a list");
  for (const json& each : written.is_array() ? written : json::array()) {
    if (auto constant = ReadConstant(each)) {
      constants.push_back(*std::move(constant));
    } else {
      config.Fail("constants", "expected an input, a shape and as many values");
    }
  }
  return std::make_unique<ElementwiseFunctionLayer>(std::move(name), *found, std::move(constants));
}

}  // namespace cairn::nn
