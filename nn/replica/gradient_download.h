// Copies a step's gradients from the device to the host in pieces of some hundred kilobytes, while the
// backward pass continues, and announces a variable when its piece has arrived. Each plan has one
// GradientDownload, which the replica owns. Used by the replica's thread.
//
//   Begin(), then Add() for each variable and AddInput() for each input whose gradient has been enqueued on the
//   device, then End(). The device may record these calls. Announce() must be called after every run, recorded or not.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "nn/model.h"

namespace cairn::nn {

class GradientDownload {
 public:
  // `from` is device memory and `to` host memory, each [model.num_parameters()]. If `from` equals `to`,
  // nothing is copied, and a piece counts as arrived once the device has computed it.
  GradientDownload(const Model& model, kernels::Device& device, const float* from, float* to)
      : model_(model), device_(device), from_(from), to_(to) {}

  void Begin();
  absl::Status Add(int variable);
  // `gradient`, which on_gradient() gets, is Node::OfModelInput() of the input. It is always copied: `from` is device
  // memory with the size of `to`, host memory.
  absl::Status AddInput(int gradient, const float* from, absl::Span<float> to);
  absl::Status End();
  // Waits for each piece in turn and calls `on_gradient` for its variables and inputs.
  absl::Status Announce(absl::FunctionRef<void(int gradient)> on_gradient);

  const float* from() const { return from_; }
  const float* to() const { return to_; }

 private:
  // Variables that are adjacent in the flat order and are copied together, or one input and no elements.
  struct Piece {
    int64_t begin = 0, end = 0;
    std::vector<int> gradients{};
    std::unique_ptr<kernels::Marker> arrived{};
  };
  bool filling() const { return next_ < pieces_.size() && !pieces_[next_].gradients.empty(); }
  absl::Status MakePiece();
  absl::Status Send();

  const Model& model_;
  kernels::Device& device_;
  const float* const from_;
  float* const to_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // the piece that Add() fills
};

}  // namespace cairn::nn
