#include "optim/store/encoded_values.h"

#include <utility>

#include "common/core/status.h"
#include "common/net/wire/codec.h"

namespace cairn::optim {
namespace {

// Idle buffers to keep. Usually two are in use at most: one that is requested, and one that is still being
// sent to a slow receiver.
constexpr size_t kIdle = 2;

}  // namespace

EncodedValues::EncodedValues(int64_t size, std::shared_ptr<MemoryBudget> budget)
    : pool_(net::Codec::Floats(size), kIdle, std::move(budget)) {}

absl::Status EncodedValues::Keep(const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding) {
  if (kept_.encoded != nullptr && kept_.encoding == encoding && kept_.source.lock() == values)
    return absl::OkStatus();
  kept_ = {};
  std::shared_ptr<AlignedBuffer> buffer = pool_.TryAcquire();
  if (buffer == nullptr) return pool_.Refusal("encoded values");
  kept_ = {.source = values, .encoding = encoding, .encoded = std::move(buffer)};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> EncodedValues::Of(
    const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding) {
  MutexLock lock(mutex_);  // concurrent callers wait for the lock, and then find the encoded values
  CAIRN_RETURN_IF_ERROR(Keep(values, encoding));
  if (kept_.elements < values->size()) {
    if (!kept_.pieces.empty()) {  // receivers of single chunks still read this buffer
      kept_.encoded = nullptr;
      CAIRN_RETURN_IF_ERROR(Keep(values, encoding));
    }
    net::CodecOf(encoding)->Encode(values->span(), reinterpret_cast<char*>(kept_.encoded->data()));
    kept_.elements = values->size();
  }
  return kept_.encoded;
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> EncodedValues::OfPiece(
    const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding, int64_t begin, int64_t end) {
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(Keep(values, encoding));
  if (kept_.elements < values->size() && kept_.pieces.insert(begin).second) {
    const auto count = static_cast<size_t>(end - begin);
    net::CodecOf(encoding)->Encode(values->span().subspan(static_cast<size_t>(begin), count),
                                   reinterpret_cast<char*>(kept_.encoded->data()) + 2 * begin);
    kept_.elements += end - begin;
  }
  return kept_.encoded;
}

}  // namespace cairn::optim
