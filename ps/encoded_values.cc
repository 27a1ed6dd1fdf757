#include "ps/encoded_values.h"

#include <utility>

#include "common/net/codec.h"

namespace cairn::ps {
namespace {

// One that is asked for and one that is still on its way to somebody slow.
constexpr size_t kIdle = 2;

}  // namespace

EncodedValues::EncodedValues(int64_t size, std::shared_ptr<MemoryBudget> budget)
    : pool_(net::Codec::Floats(size), kIdle, std::move(budget)) {}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> EncodedValues::Of(
    const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding) {
  MutexLock lock(mutex_);  // whoever else wants them waits, and need not make them
  if (encoded_ != nullptr && encoding_ == encoding && source_.lock() == values) return encoded_;
  encoded_.reset();
  const std::shared_ptr<AlignedBuffer> buffer = pool_.TryAcquire();
  if (buffer == nullptr) return pool_.Refusal("values that travel");
  net::CodecOf(encoding)->Encode(values->span(), reinterpret_cast<char*>(buffer->data()));
  source_ = values;
  encoding_ = encoding;
  encoded_ = buffer;
  return encoded_;
}

}  // namespace cairn::ps
