#include "cairn/buffer.h"

#include <cstdint>
#include <utility>

#include "api/conversions.h"
#include "common/memory/out_of_memory.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"

namespace cairn {

class [[gnu::visibility("hidden")]] Buffer::Impl {
 public:
  explicit Impl(int64_t count) : memory(count) {}
  net::SharedBuffer memory;
};

Status Buffer::Allocate(size_t count, std::unique_ptr<Buffer>* buffer) {
  return api::FromAbsl(CatchOutOfMemory("a buffer of gradients", [&] {
    buffer->reset(new Buffer(std::make_unique<Impl>(static_cast<int64_t>(count))));
    return absl::OkStatus();
  }));
}

Buffer::Buffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Buffer::~Buffer() = default;

std::span<float> Buffer::values() {
  return {impl_->memory.data(), static_cast<size_t>(impl_->memory.size())};
}

std::span<const float> Buffer::values() const {
  return {impl_->memory.data(), static_cast<size_t>(impl_->memory.size())};
}

}  // namespace cairn
