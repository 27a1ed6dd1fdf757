// A client's elements, parallel to the server's values: in a buffer of the server's, or still where the
// client has them, which it leaves as they are until its push has been answered (net::LentBytes::Keep()).
#pragma once

#include <memory>
#include <utility>

#include "common/core/aligned_buffer.h"

namespace cairn::ps {

class HeldElements {
 public:
  HeldElements() = default;  // none
  // NOLINTNEXTLINE: a buffer is the common case
  HeldElements(std::shared_ptr<const AlignedBuffer> buffer)
      : elements_(buffer == nullptr ? nullptr : std::shared_ptr<const float>(buffer, buffer->data())),
        buffer_(std::move(buffer)) {}
  // `elements` owns what it points into.
  static HeldElements AtClient(std::shared_ptr<const float> elements) {
    HeldElements held;
    held.elements_ = std::move(elements);
    return held;
  }

  bool none() const { return elements_ == nullptr && buffer_ == nullptr; }
  const float* data() const { return elements_.get(); }
  // Null when they are not in one.
  const std::shared_ptr<const AlignedBuffer>& buffer() const { return buffer_; }

  friend bool operator==(const HeldElements&, const HeldElements&) = default;

 private:
  std::shared_ptr<const float> elements_;
  std::shared_ptr<const AlignedBuffer> buffer_;
};

}  // namespace cairn::ps
