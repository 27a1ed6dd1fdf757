// Converts between layouts by oneDNN; padding channels of a blocked result become 0. Converts integers to floats.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
namespace {

class OnednnReorder final : public Reorder {
 public:
  explicit OnednnReorder(onednn::Primitive copy) : copy_(std::move(copy)) {}
  absl::Status Run(const float* from, float* to) override { return copy_.Run({from, to}); }

 private:
  onednn::Primitive copy_;
};

// Converts integers of type `Integer` to floats.
template <typename Integer>
class FromIntegers final : public Reorder {
 public:
  explicit FromIntegers(int64_t elements) : elements_(elements) {}
  absl::Status Run(const float* from, float* to) override {
    const auto* const integers = reinterpret_cast<const Integer*>(from);
    for (int64_t i = 0; i < elements_; ++i) to[i] = static_cast<float>(integers[i]);
    return absl::OkStatus();
  }

 private:
  const int64_t elements_;
};

absl::StatusOr<std::unique_ptr<Reorder>> MakeFromIntegers(const TensorDesc& from, const TensorDesc& to) {
  if (from.shape != to.shape || from.layout != Layout::kRowMajor || !to.is_plain()) {
    return absl::InvalidArgumentError(
        absl::StrCat("reorder from ", from.ToString(), " to ", to.ToString(),
                     ": integers are only converted to float32 of the same shape, row-major"));
  }
  return WithIntegerType(from.type, [&](auto zero) -> std::unique_ptr<Reorder> {
    return std::make_unique<FromIntegers<decltype(zero)>>(from.shape.num_elements());
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(onednn::Context& context, const TensorDesc& from,
                                                     const TensorDesc& to) {
  if (IsInteger(from.type)) return MakeFromIntegers(from, to);
  context.UseThreads();
  if (from.shape != to.shape || from.shape.rank() != 4) {
    return absl::InvalidArgumentError(absl::StrCat("reorder from ", from.ToString(), " to ", to.ToString(),
                                                   ": expected one shape of rank 4"));
  }
  const onednn::MemoryDesc source = onednn::ActivationDesc(from), destination = onednn::ActivationDesc(to);
  CAIRN_ASSIGN_OR_RETURN(const auto desc, onednn::MakeReorder(context, source, destination));
  CAIRN_ASSIGN_OR_RETURN(
      auto copy,
      onednn::Primitive::Create(context, desc, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, destination}}));
  return std::make_unique<OnednnReorder>(std::move(copy));
}

}  // namespace cairn::kernels::cpu
