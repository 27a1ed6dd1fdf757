// One copy of a model on one device: runs batches forward and backward. Made once; holds ops and activations
// for each batch size it meets (the full batch and the uneven last one). One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/nn/batch.h"
#include "worker/nn/device_trace.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"

namespace cairn::nn {

// Whose memory ForwardBackward() is given for gradients.
enum class GradientMemory {
  kHost,
  // Its own: nothing is copied, and a gradient is final when the device has computed it. No batch is empty
  // then.
  kDevice,
};

class Replica {
 public:
  // `model`, `device` and what `trace` records in must outlive the replica. INVALID_ARGUMENT where the loss
  // does not fit the model's output.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const Model& model, const LossSpec& loss,
                                                         kernels::Device& device, DeviceTrace trace = {},
                                                         GradientMemory gradients = GradientMemory::kHost);
  virtual ~Replica() = default;

  // Computes the gradient of the mean loss over the batch, each example's times its weight. `parameters` and
  // `gradients` are host memory (but see GradientMemory) in the model's flat order [num_parameters()].
  // `on_gradient(i)` is called once per variable as soon as its part of `gradients` is final, last layer
  // first; on the CPU from the calling thread, elsewhere perhaps from another one, always before this
  // returns. `parameters` is not read any more, and `gradients` not written, after it returned.
  virtual absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                                      const BatchView& batch, absl::Span<float> gradients,
                                                      absl::FunctionRef<void(int variable)> on_gradient) = 0;

  // The device's own memory for gradients, [num_parameters()], where it has one that the host's is not: given
  // to ForwardBackward() gradients stay there, final as of on_gradient(), which then comes from the calling
  // thread. Empty where there is none.
  virtual absl::Span<float> device_gradients() { return {}; }

  // Optional: runs the forward pass of the ForwardBackward() that comes next, whose arguments these must be,
  // while its parameters still arrive: `await(i)` is asked before variable i is read, and false ends the
  // attempt. ForwardBackward() then goes on from there, unless Evaluate() or DropForward() came between; a
  // failure shows there again.
  virtual void ForwardAhead(absl::Span<const float> /*parameters*/, const BatchView& /*batch*/,
                            absl::FunctionRef<bool(int variable)> /*await*/) {}
  virtual void DropForward() {}
  // Whether ForwardAhead() does anything.
  virtual bool runs_ahead() const { return false; }

  // Host memory that will be given again and again, as parameters, gradients or inputs: a device with memory
  // of its own copies it faster. It stays where it is until Unpin(), or until the replica goes away.
  // Optional.
  virtual absl::Status Pin(absl::Span<const float> host) = 0;
  // Of all of it. Waits until nothing is copied any more.
  virtual void Unpin() = 0;
  // Whether Pin() does anything, so that what it was given must keep its pages.
  virtual bool pins() const = 0;

  // "layer 'dense_2'": the first, in the order of the forward pass, whose output in the last
  // ForwardBackward() is not finite. Empty where there is none, or where it is not known. Reads all
  // activations.
  virtual std::string FirstNonFiniteLayer() { return ""; }

  // Loss and outputs without gradients.
  virtual absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters,
                                               const BatchView& batch) = 0;
};

}  // namespace cairn::nn
