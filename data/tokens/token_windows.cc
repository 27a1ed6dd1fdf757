#include "data/tokens/token_windows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "data/array/read_ahead.h"
#include "data/first_error.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

std::vector<SharedBytes> BytesOf(const std::vector<Array>& files) {
  std::vector<SharedBytes> bytes;
  for (const Array& file : files) bytes.push_back(file.bytes);
  return bytes;
}

class TokenWindows final : public RowSource {
 public:
  TokenWindows(std::vector<Array> files, int64_t length, int64_t offset)
      : files_(std::move(files)), row_shape_({length}), offset_(offset), read_ahead_(BytesOf(files_)) {
    for (const Array& file : files_) {
      ends_.push_back(size() + CountWindows(file.shape[0], length));
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override {
    const Window window = At(index);
    read_ahead_.Fetch({window.bytes, static_cast<size_t>(row_shape_[0] * SizeOf(window.type))});
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    const Window window = At(index);
    WithType(window.type, [&](auto zero) {
      using T = decltype(zero);
      const auto token = [&](int64_t i) { return ElementAt<T>(window.bytes, i); };
      if (const auto bad = WriteRow(to, {}, token)) {
        error_.Set(CannotHold(absl::StrCat("window ", index), *bad, token(*bad), to));
      }
    });
  }
  absl::Status status() const override { return error_.status(); }

 private:
  struct Window {
    ElementType type;
    const uint8_t* bytes;
  };
  Window At(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const Array& file = files_[static_cast<size_t>(end - ends_.begin())];
    const int64_t first = end == ends_.begin() ? 0 : *std::prev(end);
    const int64_t token = (index - first) * row_shape_[0] + offset_;
    return {file.type, file.bytes.data() + token * SizeOf(file.type)};
  }

  const std::vector<Array> files_;
  const Shape row_shape_;
  const int64_t offset_;
  const ReadAhead read_ahead_;
  std::vector<int64_t> ends_;  // [file] the number of windows up to its end
  mutable FirstError error_;
};

}  // namespace

std::unique_ptr<RowSource> MakeTokenWindows(std::vector<Array> files, int64_t length, int64_t offset) {
  return std::make_unique<TokenWindows>(std::move(files), length, offset);
}

}  // namespace cairn::data
