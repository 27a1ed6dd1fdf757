// Memory for gradients that a server on the same host can map.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cairn/export.h"
#include "cairn/status.h"

namespace cairn {

// Floats on pages of their own, aligned to a page, all 0 at first. The memory never moves.
//
// Gradients in a Buffer are sent without a copy: a server on the same host maps the pages and reads the
// gradients where they are, and the network sends them from there. Gradients in any other memory work too: a
// server on the same host copies them once.
//
// A Buffer may be freed when no step with its gradients is in progress. Not thread-safe, apart from the
// memory itself.
class CAIRN_EXPORT Buffer {
 public:
  // kResourceExhausted if the system lacks memory for `count` floats.
  static Status Allocate(size_t count, std::unique_ptr<Buffer>* buffer);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<float> values();
  std::span<const float> values() const;

 private:
  class Impl;
  explicit Buffer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
