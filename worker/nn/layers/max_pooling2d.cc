// MaxPooling2D: channels last, in the layout that its input has.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class MaxPooling2DOp final : public LayerOp {
 public:
  explicit MaxPooling2DOp(std::unique_ptr<kernels::MaxPool2D> op) : op_(std::move(op)) {}

  const kernels::TensorDesc& output() const override { return op_->output(); }
  absl::Status Forward(const ForwardArgs& args) override { return op_->Forward(args.inputs[0], args.output); }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const std::unique_ptr<kernels::MaxPool2D> op_;
};

class MaxPooling2DLayer final : public Layer {
 public:
  struct Config {
    std::array<int64_t, 2> pool_size, strides;
    kernels::Padding padding;
  };
  MaxPooling2DLayer(std::string name, Config config)
      : Layer(std::move(name), "MaxPooling2D"), config_(config) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is no image [height, width, channels]"));
    }
    CAIRN_ASSIGN_OR_RETURN(
        const Shape output,
        kernels::OutputShape(Params({.shape = {1, inputs[0][0], inputs[0][1], inputs[0][2]}})));
    return Shape({output[1], output[2], output[3]});
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked() const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeMaxPool2D(Params(params.inputs[0])));
    return std::make_unique<MaxPooling2DOp>(std::move(op));
  }

 private:
  kernels::MaxPool2DParams Params(kernels::TensorDesc input) const {
    return {.input = std::move(input),
            .pool_height = config_.pool_size[0],
            .pool_width = config_.pool_size[1],
            .stride_height = config_.strides[0],
            .stride_width = config_.strides[1],
            .padding = config_.padding};
  }

  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeMaxPooling2D(std::string name, ConfigReader& config) {
  const std::array<int64_t, 2> pool_size = config.PositivePair("pool_size", {{2, 2}});
  const MaxPooling2DLayer::Config read = {
      .pool_size = pool_size,
      .strides = config.PositivePair("strides", pool_size),
      .padding = config.Choice("padding", {"valid", "same"}, "valid") == "same" ? kernels::Padding::kSame
                                                                                : kernels::Padding::kValid};
  config.Refuse("data_format", "channels_last");
  return std::make_unique<MaxPooling2DLayer>(std::move(name), read);
}

}  // namespace cairn::nn
