// The elements of a push, parallel to the server's values. They are in a buffer of the server, in the
// client's memory, or partly in both. The client leaves its memory unchanged until its push has been answered
// (net::BorrowedBytes::Keep()). Immutable: copies share the memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "optim/update.h"

namespace cairn::ps {

class GradientView {
 public:
  GradientView() = default;  // none() is true
  // NOLINTNEXTLINE: a buffer is the common case
  GradientView(std::shared_ptr<const AlignedBuffer> buffer) {
    if (buffer == nullptr) return;
    rep_ = std::make_shared<Rep>(Rep{.runs = {{0, buffer->data()}}, .owners = {}, .buffer = buffer});
  }
  // `runs` has at least one run. `owners` keep the memory of the runs alive.
  GradientView(std::vector<optim::ElementRun> runs, std::vector<std::shared_ptr<const void>> owners)
      : rep_(std::make_shared<Rep>(
            Rep{.runs = std::move(runs), .owners = std::move(owners), .buffer = nullptr})) {}

  bool none() const { return rep_ == nullptr; }
  absl::Span<const optim::ElementRun> runs() const {
    return none() ? absl::Span<const optim::ElementRun>() : absl::MakeConstSpan(rep_->runs);
  }
  // Null unless all elements are in one buffer.
  std::shared_ptr<const AlignedBuffer> buffer() const { return none() ? nullptr : rep_->buffer; }

  // True if both refer to the same memory.
  friend bool operator==(const GradientView& a, const GradientView& b) { return a.runs() == b.runs(); }

 private:
  struct Rep {
    const std::vector<optim::ElementRun> runs;
    const std::vector<std::shared_ptr<const void>> owners;
    const std::shared_ptr<const AlignedBuffer> buffer;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace cairn::ps
