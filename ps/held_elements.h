// The elements of a push, parallel to the server's values. They are in a buffer of the server, or still in
// the client's memory, which the client leaves unchanged until its push has been answered
// (net::LentBytes::Keep()), or partly in both. Immutable: copies share the memory.
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
  // `owners` keep alive what the runs point into. At least one run.
  HeldElements(std::vector<ElementRun> runs, std::vector<std::shared_ptr<const void>> owners)
      : held_(std::make_shared<Held>(
            Held{.runs = std::move(runs), .owners = std::move(owners), .buffer = nullptr})) {}

  bool none() const { return held_ == nullptr; }
  absl::Span<const ElementRun> runs() const {
    return none() ? absl::Span<const ElementRun>() : absl::MakeConstSpan(held_->runs);
  }
  // Null unless all elements are in one buffer.
  std::shared_ptr<const AlignedBuffer> buffer() const { return none() ? nullptr : held_->buffer; }

  // True if both refer to the same memory.
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
