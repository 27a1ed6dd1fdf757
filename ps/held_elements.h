// A client's elements, parallel to the server's values: in a buffer of the server's, or still where the
// client has them, which it leaves as they are until its push has been answered (net::LentBytes::Keep()); or
// some here and some there. Immutable: copies share what they hold.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "ps/optim/update.h"

namespace cairn::ps {

class HeldElements {
 public:
  HeldElements() = default;  // none
  // NOLINTNEXTLINE: a buffer is the common case
  HeldElements(std::shared_ptr<const AlignedBuffer> buffer) {
    if (buffer == nullptr) return;
    held_ = std::make_shared<Held>(Held{.runs = {{0, buffer->data()}}, .owners = {}, .buffer = buffer});
  }
  // `owners`: of what the runs point into. At least one run.
  HeldElements(std::vector<ElementRun> runs, std::vector<std::shared_ptr<const void>> owners)
      : held_(std::make_shared<Held>(
            Held{.runs = std::move(runs), .owners = std::move(owners), .buffer = nullptr})) {}

  bool none() const { return held_ == nullptr; }
  absl::Span<const ElementRun> runs() const {
    return none() ? absl::Span<const ElementRun>() : absl::MakeConstSpan(held_->runs);
  }
  // Null when they are not, or not all, in one.
  std::shared_ptr<const AlignedBuffer> buffer() const { return none() ? nullptr : held_->buffer; }

  // In the same place.
  friend bool operator==(const HeldElements& a, const HeldElements& b) { return a.runs() == b.runs(); }

 private:
  struct Held {
    const std::vector<ElementRun> runs;
    const std::vector<std::shared_ptr<const void>> owners;
    const std::shared_ptr<const AlignedBuffer> buffer;
  };
  std::shared_ptr<const Held> held_;
};

}  // namespace cairn::ps
