// A copy of a model on one device, which runs batches forward and backward. It is created once, and keeps ops
// and activations for each batch size it meets (the full batch and the smaller last one), and for each length of
// sequences (Model::shorter()). One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/replica/device_trace.h"

namespace cairn::nn {

// The kind of memory that ForwardBackward() writes gradients to.
enum class GradientMemory {
  kHost,
  // The device's own memory: nothing is copied, and a gradient is final when the device has computed it.
  // Batches must not be empty.
  kDevice,
};

// `trace` and `sync` are borrowed.
struct ReplicaOptions {
  DeviceTrace trace{};
  GradientMemory gradients = GradientMemory::kHost;
  // The other parts of each batch, for a model that synchronizes batches; null: there are none.
  BatchSync* sync = nullptr;
};

class Replica {
 public:
  // `model`, `device` and what the options borrow must outlive the replica. INVALID_ARGUMENT if the loss does
  // not fit the model's output.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const Model& model, const Objective& objective,
                                                         kernels::Device& device,
                                                         const ReplicaOptions& options = {});
  virtual ~Replica() = default;

  // Computes the gradient of the mean loss over the batch, each example's loss multiplied by its weight.
  // `parameters` and `gradients` are host memory (but see GradientMemory) in the model's flat order
  // [num_parameters()]. `on_gradient(i)` is called once per variable, as soon as the variable's part of
  // `gradients` is final, last layer first. It is also called once with Node::OfModelInput(i) for each input i that
  // needs a gradient, as soon as `batch.input_gradients[i]` is final. A CPU calls it from the calling thread, other
  // devices may call it from another thread, but always before this returns. Afterwards `parameters` is no longer
  // read, and `gradients` no longer written. After an error, gradients for which it was not called are undefined.
  virtual absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                                      const BatchView& batch, absl::Span<float> gradients,
                                                      absl::FunctionRef<void(int gradient)> on_gradient) = 0;

  // The device's own memory for gradients, [num_parameters()]; empty if the device computes in host memory.
  // If this memory is passed to ForwardBackward(), gradients stay on the device, and each is final when
  // on_gradient() is called, which then happens in the calling thread.
  virtual absl::Span<float> device_gradients() { return {}; }

  // Optional: starts the forward pass of the next ForwardBackward(), which must have the same arguments,
  // while parameters still arrive. `await(i)` is called before variable i is read; if it returns false, the
  // attempt ends. ForwardBackward() continues from there, unless Evaluate() or DropForward() was called in
  // between. Errors are not reported here: ForwardBackward() repeats the pass and reports them.
  virtual void StartForward(absl::Span<const float> /*parameters*/, const BatchView& /*batch*/,
                            absl::FunctionRef<bool(int variable)> /*await*/) {}
  virtual void DropForward() {}
  // Whether StartForward() does anything.
  virtual bool starts_early() const { return false; }

  // Whether batches may have row_bags, which the device pools. on_gradient() is not called for inputs made from them.
  virtual bool pools_rows() const { return false; }

  // Optional: pins host memory that will be passed repeatedly as parameters, gradients or inputs. A device
  // with its own memory copies it faster. The memory must stay valid until Unpin() or the replica's
  // destruction.
  virtual absl::Status Pin(absl::Span<const float> host) = 0;
  // Unpins all pinned memory. Waits for pending copies.
  virtual void Unpin() = 0;
  // Whether Pin() has an effect. If so, the pages of memory that is to be pinned must not be replaced
  // (net::SharedBuffer).
  virtual bool pins() const = 0;

  // "layer 'dense_2'": the first layer, in the order of the forward pass, whose output in the last
  // ForwardBackward() is not finite. Empty if there is none, or if it is not known. Runs the forward pass again, so the
  // arguments of that call must still exist.
  virtual std::string FirstNonFiniteLayer() { return ""; }

  // Computes loss and outputs without gradients.
  virtual absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters,
                                               const BatchView& batch) = 0;
};

}  // namespace cairn::nn
