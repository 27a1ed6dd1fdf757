// The elements of a push, parallel to the server's values. They are in a buffer of the server, in the
// client's memory, or partly in both. The client leaves its memory unchanged until its push has been answered
// (net::BorrowedBytes::Keep()). Immutable: copies share the memory.
//
// The view is a typed handle of a TableGradient of a DenseTable.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "optim/update.h"
#include "ps/table/table.h"

namespace cairn::ps {

class GradientView {
 public:
  GradientView() = default;  // none() is true
  // NOLINTNEXTLINE: a buffer is the common case
  GradientView(std::shared_ptr<const AlignedBuffer> buffer) {
    if (buffer == nullptr) return;
    rep_ = std::make_shared<const Rep>(std::vector<optim::ElementRun>{{0, buffer->data()}},
                                       std::vector<std::shared_ptr<const void>>(), buffer);
  }
  // `runs` has at least one run. `owners` keep the memory of the runs alive.
  GradientView(std::vector<optim::ElementRun> runs, std::vector<std::shared_ptr<const void>> owners)
      : rep_(std::make_shared<const Rep>(std::move(runs), std::move(owners), nullptr)) {}
  // `gradient` is from gradient() of another view, or null.
  static GradientView Of(std::shared_ptr<const TableGradient> gradient) {
    GradientView view;
    view.rep_ = std::static_pointer_cast<const Rep>(std::move(gradient));
    return view;
  }

  std::shared_ptr<const TableGradient> gradient() const { return rep_; }
  bool none() const { return rep_ == nullptr; }
  absl::Span<const optim::ElementRun> runs() const {
    return none() ? absl::Span<const optim::ElementRun>() : absl::MakeConstSpan(rep_->runs);
  }
  // Null unless all elements are in one buffer.
  std::shared_ptr<const AlignedBuffer> buffer() const { return none() ? nullptr : rep_->buffer; }

  // True if both refer to the same memory.
  friend bool operator==(const GradientView& a, const GradientView& b) { return a.runs() == b.runs(); }

 private:
  struct Rep final : TableGradient {
    Rep(std::vector<optim::ElementRun> runs_in, std::vector<std::shared_ptr<const void>> owners_in,
        std::shared_ptr<const AlignedBuffer> buffer_in)
        : runs(std::move(runs_in)), owners(std::move(owners_in)), buffer(std::move(buffer_in)) {}

    const std::vector<optim::ElementRun> runs;
    const std::vector<std::shared_ptr<const void>> owners;
    const std::shared_ptr<const AlignedBuffer> buffer;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace cairn::ps
