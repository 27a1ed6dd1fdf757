// Layer ops that wrap the kernels' ops. Most layers use them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// The input's memory under another shape.
class ViewOp final : public LayerOp {
 public:
  explicit ViewOp(kernels::TensorDesc output) : output_(std::move(output)) {}
  const kernels::TensorDesc& output() const override { return output_; }
  bool is_view() const override { return true; }
  absl::Status Forward(const ForwardArgs&) override { return absl::InternalError("a view is never run"); }
  absl::Status Backward(const BackwardArgs&) override { return absl::InternalError("a view is never run"); }

 private:
  const kernels::TensorDesc output_;
};

// For ops whose backward passes read gradients only, as those of sums and of copies do.
inline constexpr BackwardReads kReadsNothing = {.inputs = false, .output = false};

class UnaryLayerOp final : public LayerOp {
 public:
  explicit UnaryLayerOp(std::unique_ptr<kernels::UnaryOp> op, BackwardReads reads = {})
      : op_(std::move(op)), reads_(reads) {}
  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return reads_; }
  absl::Status Forward(const ForwardArgs& args) override { return op_->Forward(args.inputs[0], args.output); }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.inputs[0], args.output, args.output_gradient, args.input_gradients[0]);
  }

 private:
  const std::unique_ptr<kernels::UnaryOp> op_;
  const BackwardReads reads_;
};

// Variables: the kernel, and the bias if there is one.
class LinearLayerOp final : public LayerOp {
 public:
  // `fused`: `op` has a relu or pooling.
  LinearLayerOp(std::unique_ptr<kernels::LinearOp> op, bool use_bias, bool fused = true)
      : op_(std::move(op)), use_bias_(use_bias), fused_(fused) {}

  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return {.output = fused_}; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], args.variables[0], use_bias_ ? args.variables[1] : nullptr,
                        args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  const std::unique_ptr<kernels::LinearOp> op_;
  const bool use_bias_, fused_;
};

// Takes a part of the input. This is the transpose of padding the part with zeros: it does to a value what padding does
// to a gradient, and vice versa.
class CropOp final : public LayerOp {
 public:
  // `padding`: of the output.
  CropOp(kernels::TensorDesc output, std::unique_ptr<kernels::UnaryOp> padding)
      : output_(std::move(output)), padding_(std::move(padding)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return kReadsNothing; }
  absl::Status Forward(const ForwardArgs& args) override {
    return padding_->Backward(nullptr, nullptr, args.inputs[0], args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return padding_->Forward(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::UnaryOp> padding_;
};

// An op whose output is presented under another shape.
class ReshapedOp final : public LayerOp {
 public:
  ReshapedOp(kernels::TensorDesc output, std::unique_ptr<LayerOp> op)
      : output_(std::move(output)), op_(std::move(op)) {}
  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return op_->backward_reads(); }
  bool forwards_in_place() const override { return op_->forwards_in_place(); }
  bool ignores_inputs() const override { return op_->ignores_inputs(); }
  absl::Status Forward(const ForwardArgs& args) override { return op_->Forward(args); }
  absl::Status Backward(const BackwardArgs& args) override { return op_->Backward(args); }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<LayerOp> op_;
};

class NaryLayerOp final : public LayerOp {
 public:
  explicit NaryLayerOp(std::unique_ptr<kernels::NaryOp> op, bool reads_inputs = true)
      : op_(std::move(op)), reads_inputs_(reads_inputs) {}
  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return {.inputs = reads_inputs_, .output = false}; }
  absl::Status Forward(const ForwardArgs& args) override { return op_->Forward(args.inputs, args.output); }
  absl::Status Backward(const BackwardArgs& args) override {
    return op_->Backward(args.inputs, args.output_gradient, args.input_gradients);
  }

 private:
  const std::unique_ptr<kernels::NaryOp> op_;
  const bool reads_inputs_;
};

// Converts its input to row-major float32, and converts the gradient back.
class ReorderOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& from,
                                                         kernels::Device& device);
  ReorderOp(kernels::TensorDesc output, std::unique_ptr<kernels::Reorder> forward,
            std::unique_ptr<kernels::Reorder> backward)
      : output_(std::move(output)), forward_(std::move(forward)), backward_(std::move(backward)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return kReadsNothing; }
  absl::Status Forward(const ForwardArgs& args) override {
    return forward_->Run(args.inputs[0], args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return backward_->Run(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::Reorder> forward_, backward_;
};

// A random change in training, nothing in inference. Gradients use the choice of the last Forward().
class DropoutOp final : public LayerOp {
 public:
  DropoutOp(kernels::TensorDesc output, std::unique_ptr<kernels::Dropout> op, kernels::Device& device)
      : output_(std::move(output)), op_(std::move(op)), device_(device) {}

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return kReadsNothing; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (args.training) return op_->Forward(args.inputs[0], args.output);
    return device_.CopyOnDevice(args.inputs[0], args.output, output_.num_floats());
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::Dropout> op_;
  kernels::Device& device_;
};

// Ops with one input each, run in sequence. The layer's variables are in the order of the ops.
class ChainOp final : public LayerOp {
 public:
  struct Link {
    std::unique_ptr<LayerOp> op;
    size_t variables = 0;
    // The memory between this op and the next op; null in the last link.
    std::unique_ptr<kernels::DeviceMemory> output{}, gradient{};
  };
  // `links` are given without memory. Every link but the first must state its number of variables. The first
  // link gets the layer's remaining variables.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(std::vector<Link> links, kernels::Device& device);

  const kernels::TensorDesc& output() const override { return links_.back().op->output(); }
  BackwardReads backward_reads() const override {
    return {.inputs = links_.front().op->backward_reads().inputs,
            .output = links_.back().op->backward_reads().output};
  }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  explicit ChainOp(std::vector<Link> links) : links_(std::move(links)) {}
  // The variables of link `index`, taken from `all` variables of the layer.
  template <typename Pointer>
  absl::Span<Pointer> Of(size_t index, absl::Span<Pointer> all) const {
    size_t end = all.size();
    for (size_t after = links_.size() - 1; after > index; --after) end -= links_[after].variables;
    const size_t count = index == 0 ? end : links_[index].variables;
    return all.subspan(end - count, count);
  }

  std::vector<Link> links_;
};

}  // namespace cairn::nn
