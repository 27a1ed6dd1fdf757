// A layer of a network, as its JSON describes it, independent of any device. A Model owns its layers. They
// are immutable and may be read from any thread. MakeOp() turns a layer into code on a device, for fixed
// shapes.
//
// To add a layer, add a file in layers/ and a row in layer_registry.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/constraint.h"
#include "common/core/shape.h"
#include "kernels/device.h"
#include "nn/layer/decoding.h"
#include "nn/layer/initializer.h"
#include "nn/layer/onnx_graph.h"

namespace cairn::nn {

class BatchSync;  // nn/layer/batch_sync.h
struct RowTable;  // nn/layers/row_table.h

// The use that a layer makes of the mask of its input's time steps (Keras' `mask`): [batch, steps], 1 for a step
// that counts, 0 for one that does not. Layers with mask_maker() make masks.
enum class MaskUse {
  kDrops,   // computes as without a mask; the output has none
  kPasses,  // computes as without a mask; the output has the input's mask or, of several inputs, their union
  kTakes,   // the op reads the mask; the output has none
  kTakesAndPasses,       // both
  kTakesAndPassesFirst,  // both, and the output has the mask of the first input
  kRefuses,              // Keras' layer reads the mask, which is not supported
};

// A penalty on a variable, added to the loss: l1 sum |w| + l2 sum w^2. For a matrix also `orthogonal` times the mean of
// |dot product| over the pairs of its rows or columns, each divided by its L2 norm.
struct RegularizerSpec {
  float l1 = 0, l2 = 0;
  float orthogonal = 0;
  bool of_columns = false;

  bool any() const { return l1 != 0 || l2 != 0 || orthogonal != 0; }
};

// A variable of a layer.
struct VariableSpec {
  std::string name;  // within the layer: "kernel"
  Shape shape;
  InitializerSpec initializer;
  RegularizerSpec regularizer{};
  // Set for a statistic, which no optimizer trains. Instead of a gradient, the layer returns the batch's own
  // value, and the variable becomes momentum * variable + (1 - momentum) * value.
  std::optional<float> moving_average_momentum{};
  // As in the file: an axis may be counted from the end, and may not exist (Model checks it).
  std::optional<Constraint> constraint{};
};

// Which values of the forward pass the backward pass of an op reads: its inputs, and its output.
struct BackwardReads {
  bool inputs = true, output = true;
};

// A layer on a device, for one batch size. All pointers are device memory and borrowed for the call.
// Variables are row-major, in the order of Layer::Variables().
class LayerOp {
 public:
  struct ForwardArgs {
    absl::Span<const float* const> inputs;
    absl::Span<const float* const> variables;
    float* output = nullptr;
    bool training = false;
  };
  struct BackwardArgs {
    absl::Span<const float* const> inputs;  // as given to Forward
    absl::Span<const float* const> variables;
    const float* output = nullptr;             // as Forward wrote it
    float* output_gradient = nullptr;          // may be overwritten
    absl::Span<float* const> input_gradients;  // [input]; null if not needed
    absl::Span<float* const> gradients;        // [variable]; for a statistic, the batch's value
    // If present, an op may call this function after it has written all of `gradients`, before it computes
    // the gradients of its inputs.
    std::optional<absl::FunctionRef<absl::Status()>> on_gradients{};
  };

  virtual ~LayerOp() = default;
  virtual const kernels::TensorDesc& output() const = 0;
  // True if the output is the input's memory under another shape. Then Forward() and Backward() are never
  // called.
  virtual bool is_view() const { return false; }
  // The values that Backward() reads. Memory of others is used again during the forward pass.
  virtual BackwardReads backward_reads() const { return {}; }
  // True if Forward() may write over its only input.
  virtual bool forwards_in_place() const { return false; }
  // True if the output depends on the shapes of the inputs only. Then Backward() is given null for the gradient of an
  // input that another op has written, as it would only add zeros to it.
  virtual bool ignores_inputs() const { return false; }
  virtual absl::Status Forward(const ForwardArgs& args) = 0;
  virtual absl::Status Backward(const BackwardArgs& args) = 0;
  // The penalty that the op adds to the loss: the mean over LayerOpParams::mean_over examples. In host memory,
  // valid after the device's next Synchronize(). Backward() adds its gradient.
  virtual double penalty() const { return 0; }
};

struct LayerOpParams {
  // The shapes include the batch. Inputs are row-major unless the layer accepts_blocked(); then all inputs
  // have the same layout. The masks that the layer takes follow its own inputs: [batch, steps], plain float32.
  absl::Span<const kernels::TensorDesc> inputs;
  bool needs_input_gradients = true;
  // [mask] the own input whose steps the mask masks.
  absl::Span<const int> masked{};
  // The input is a ragged input of the model, [batch, 1] here, in memory as EmbeddingParams::ragged_mean describes.
  bool ragged = false;
  // The number of examples over which penalties are averaged; the batch may have only some of them. 0: the batch.
  int64_t mean_over = 0;
  // The gradients of statistics are multiplied by it: of several calls of a layer, each has a share.
  float statistics_weight = 1;
  // For a layer that synchronizes_batch(): the other parts of the batch; null: there are none. Outlives the op.
  BatchSync* sync = nullptr;
  // Set for an op that computes some steps of a sequence, if the layer's step_use() is kDecodes. Only Forward() is
  // called. Numbers are float32.
  const Decoding* decoding = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }              // "conv2d_1": unique in the model
  const std::string& class_name() const { return class_name_; }  // "Conv2D"

  // Whether the layer takes several inputs. Other layers take one.
  virtual bool merges() const { return false; }
  // The number of states of a recurrent layer. It takes none as inputs, or all of them after its first input.
  virtual int num_states() const { return 0; }
  // A layer may have several outputs. Its op then writes them one after another into one vector for each example, whose
  // shape is OutputShape(), and nodes behind it select them (ModelBuilder::AddOutputOf).
  virtual int num_outputs() const { return 1; }
  // [output] The shapes of several outputs. Empty for a layer with one output.
  virtual std::vector<Shape> OutputShapes(absl::Span<const Shape> /*inputs*/) const { return {}; }
  // Shapes are without the batch. INVALID_ARGUMENT if the layer cannot take these inputs; the caller adds the
  // layer's name.
  virtual absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const = 0;
  // `inputs` must have been accepted by OutputShape().
  virtual std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const = 0;

  // True when MakeOp() takes images of these shapes in any layout.
  virtual bool accepts_blocked(absl::Span<const Shape> /*inputs*/) const { return false; }
  // True for a layer that draws random numbers in training, or computes otherwise differently than in inference.
  virtual bool differs_in_training() const { return false; }
  // True for a layer that normalizes by the whole batch of all devices and workers (Keras' `synchronized`). Its ops
  // need LayerOpParams::sync if a batch is divided among devices.
  virtual bool synchronizes_batch() const { return false; }
  // Whether ops of the layer may have a penalty().
  virtual bool adds_penalty() const { return false; }
  // True when MakeOp() takes integers as they are. Other layers get them as float32.
  virtual bool takes_integers() const { return false; }
  virtual MaskUse mask_use() const { return MaskUse::kDrops; }
  // For a layer that makes the mask of its output, such as an Embedding with mask_zero: a layer that computes the mask
  // from the same inputs. Null for other layers.
  virtual std::shared_ptr<const Layer> mask_maker() const { return nullptr; }
  // For a layer with a mask_maker(): the value of the steps that are masked.
  virtual std::optional<double> masked_value() const { return std::nullopt; }
  // Whether the output is a mask. It has no gradient, and no summary shows the layer.
  virtual bool is_mask() const { return false; }
  // The use that the layer makes of the steps of its own inputs, of which at least one is kSteps.
  virtual StepUse step_use(absl::Span<const Shape> /*inputs*/,
                           absl::Span<const DecodedInput> /*kinds*/) const {
    return StepUse::kMixes;
  }
  // The name of the layer whose variables this layer shares, those of equal names, and whose group in Keras' files has
  // this layer's other variables; empty: none. That layer must be called before.
  virtual absl::string_view variables_of() const { return ""; }
  // Set for a layer whose table is always outside the model (replace_embeddings.h). It takes ids, and may take weights.
  virtual const RowTable* row_table() const { return nullptr; }
  // `device` must outlive the op.
  virtual absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                          kernels::Device& device) const = 0;

  // Makes one op of this layer and `next`, which must be the only user of this layer's output. The op has
  // this layer's variables. UNIMPLEMENTED if the device gains nothing from a fused op.
  virtual absl::StatusOr<std::unique_ptr<LayerOp>> MakeFusedOp(const LayerOpParams& /*params*/,
                                                               const Layer& /*next*/,
                                                               kernels::Device& /*device*/) const {
    return absl::UnimplementedError("nothing to fuse");
  }
  // Makes an op of one input for a layer that takes the same value twice. UNIMPLEMENTED if the device gains nothing
  // from it.
  virtual absl::StatusOr<std::unique_ptr<LayerOp>> MakeOpOfSameInputs(const LayerOpParams& /*params*/,
                                                                      kernels::Device& /*device*/) const {
    return absl::UnimplementedError("no op of one input");
  }
  // Height and width of the windows if this layer is a max pooling with windows that do not overlap. The
  // preceding layer's op may then include the pooling.
  virtual std::optional<std::array<int64_t, 2>> max_pooling() const { return std::nullopt; }

  // Adds the layer's inference to `onnx` and returns its output. `variables` are in the order of Variables(),
  // borrowed for the call. UNIMPLEMENTED if ONNX has no operations for the layer; the caller adds the layer's
  // name.
  virtual absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> /*inputs*/,
                                           absl::Span<const OnnxVariable> /*variables*/,
                                           OnnxBuilder& /*onnx*/) const {
    return absl::UnimplementedError("cannot be expressed in ONNX");
  }

 protected:
  Layer(std::string name, std::string class_name)
      : name_(std::move(name)), class_name_(std::move(class_name)) {}

 private:
  const std::string name_;
  const std::string class_name_;
};

}  // namespace cairn::nn
