#include "nn/replica/gradient_download.h"

#include <algorithm>

#include "common/core/status.h"

namespace cairn::nn {
namespace {

// A piece is complete when it has at least this many elements. Large enough that a copy's fixed cost of a few
// microseconds is negligible.
constexpr int64_t kPieceFloats = 64 << 10;

}  // namespace

absl::Status GradientDownload::Add(int variable) {
  const ModelVariable& added = model_.variables()[static_cast<size_t>(variable)];
  const int64_t begin = added.offset, end = begin + added.shape.num_elements();
  if (filling()) {
    const Piece& piece = pieces_[next_];
    const bool neighbour = begin == piece.end || end == piece.begin;
    if (!neighbour || piece.end - piece.begin >= kPieceFloats) CAIRN_RETURN_IF_ERROR(Send());
  }
  CAIRN_RETURN_IF_ERROR(MakePiece());
  Piece& piece = pieces_[next_];
  piece.begin = filling() ? std::min(piece.begin, begin) : begin;
  piece.end = filling() ? std::max(piece.end, end) : end;
  piece.gradients.push_back(variable);
  return absl::OkStatus();
}

absl::Status GradientDownload::AddInput(int gradient, const float* from, absl::Span<float> to) {
  if (filling()) CAIRN_RETURN_IF_ERROR(Send());
  CAIRN_RETURN_IF_ERROR(device_.CopyToHost(from, to.data(), static_cast<int64_t>(to.size() * sizeof(float))));
  CAIRN_RETURN_IF_ERROR(MakePiece());
  Piece& piece = pieces_[next_];
  piece.begin = piece.end = 0;
  piece.gradients.push_back(gradient);
  return Send();
}

// Makes the piece `next_` if it does not exist.
absl::Status GradientDownload::MakePiece() {
  if (next_ < pieces_.size()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(pieces_.emplace_back().arrived, device_.MakeMarker());
  return absl::OkStatus();
}

void GradientDownload::Begin() {
  for (Piece& piece : pieces_) piece.gradients.clear();
  next_ = 0;
}

absl::Status GradientDownload::End() {
  return filling() ? Send() : absl::OkStatus();
}

absl::Status GradientDownload::Send() {
  const Piece& piece = pieces_[next_++];
  if (from_ != to_ && piece.begin < piece.end) {
    CAIRN_RETURN_IF_ERROR(device_.CopyToHost(from_ + piece.begin, to_ + piece.begin,
                                             (piece.end - piece.begin) * int64_t{sizeof(float)}));
  }
  return piece.arrived->Set();
}

absl::Status GradientDownload::Announce(absl::FunctionRef<void(int gradient)> on_gradient) {
  for (const Piece& piece : pieces_) {
    CAIRN_RETURN_IF_ERROR(piece.arrived->Wait());
    for (const int gradient : piece.gradients) on_gradient(gradient);
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
