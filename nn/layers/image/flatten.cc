// Flatten and Reshape: they do not change the row-major memory.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class ReshapeLayer final : public Layer {
 public:
  // `target`: one extent may be -1, for the remaining elements.
  ReshapeLayer(std::string name, std::string class_name, std::vector<int64_t> target)
      : Layer(std::move(name), std::move(class_name)), target_(std::move(target)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    int64_t known = 1;
    for (int64_t extent : target_) known *= extent < 0 ? 1 : extent;
    const int64_t elements = inputs[0].num_elements();
    Shape output;
    for (int64_t extent : target_) output.Append(extent < 0 ? elements / known : extent);
    if (output.num_elements() != elements) {
      return absl::InvalidArgumentError(absl::StrCat("input ", inputs[0].ToString(), " of ", elements,
                                                     " elements does not fit [", absl::StrJoin(target_, ","),
                                                     "]"));
    }
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  bool takes_integers() const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device&) const override {
    const Shape input = WithoutBatch(params.inputs[0].shape);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    Shape with_batch = {params.inputs[0].shape[0]};
    for (int64_t extent : output.dims()) with_batch.Append(extent);
    return std::make_unique<ViewOp>(params.inputs[0].WithShape(std::move(with_batch)));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    std::vector<int64_t> extents = {0};  // the batch is unchanged
    extents.insert(extents.end(), output.dims().begin(), output.dims().end());
    const std::string name =
        output.rank() == 1
            ? onnx.Add("Flatten", {onnx.ChannelsLast(inputs[0])}, {{"axis", int64_t{1}}})
            : onnx.Add("Reshape", {onnx.ChannelsLast(inputs[0]), onnx.Ints("shape", std::move(extents))});
    return onnx.FromChannelsLast(name, output, onnx.TypeOf(inputs[0]));
  }

 private:
  const std::vector<int64_t> target_;
};

}  // namespace

std::unique_ptr<Layer> MakeFlatten(std::string name, ConfigReader& config) {
  config.Refuse("data_format", "channels_last");
  return std::make_unique<ReshapeLayer>(std::move(name), "Flatten", std::vector<int64_t>{-1});
}

std::unique_ptr<Layer> MakeReshape(std::string name, ConfigReader& config) {
  std::vector<int64_t> target = config.Ints("target_shape");
  int64_t unknown = 0;
  for (int64_t extent : target) {
    if (extent == -1) ++unknown;
    if (extent < -1 || extent == 0 || unknown > 1) {
      config.Fail("target_shape", absl::StrCat("[", absl::StrJoin(target, ","),
                                               "]: extents must be positive, one may be -1"));
      break;
    }
  }
  return std::make_unique<ReshapeLayer>(std::move(name), "Reshape", std::move(target));
}

}  // namespace cairn::nn
