#include "ps/table/embedding/row_gradient.h"

namespace cairn::ps {

absl::Status RowGradient::Add(net::ReceivedRows frame) {
  const auto bytes =
      static_cast<int64_t>(frame.ids().size() * sizeof(int64_t) + frame.elements().size() * sizeof(float));
  if (!budget_->TryTake(bytes)) return budget_->Refusal("the gradients of rows", bytes);
  bytes_ += bytes;
  rows_ += frame.ids().size();
  frames_.push_back(std::move(frame));
  return absl::OkStatus();
}

}  // namespace cairn::ps
