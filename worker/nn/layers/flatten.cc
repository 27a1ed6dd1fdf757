// Flatten: all but the batch becomes one axis. Row-major memory stays as it is.
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/status.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class FlattenOp final : public LayerOp {
 public:
  explicit FlattenOp(kernels::TensorDesc output) : output_(std::move(output)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  bool is_view() const override { return true; }
  absl::Status Forward(const ForwardArgs&) override { return absl::InternalError("Flatten is a view"); }
  absl::Status Backward(const BackwardArgs&) override { return absl::InternalError("Flatten is a view"); }

 private:
  const kernels::TensorDesc output_;
};

class FlattenLayer final : public Layer {
 public:
  explicit FlattenLayer(std::string name) : Layer(std::move(name), "Flatten") {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    return Shape({inputs[0].num_elements()});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device&) const override {
    const Shape& input = params.inputs[0].shape;
    return std::make_unique<FlattenOp>(kernels::TensorDesc{.shape = {input[0], input.row_elements()}});
  }
};

}  // namespace

std::unique_ptr<Layer> MakeFlatten(std::string name, ConfigReader& config) {
  config.Refuse("data_format", "channels_last");
  return std::make_unique<FlattenLayer>(std::move(name));
}

}  // namespace cairn::nn
