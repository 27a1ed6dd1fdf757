#include "kernels/cpu/log_sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"

namespace cairn::kernels::cpu {

LogSum LogSumOf(absl::Span<const float> logits) {
  static const ActivationCode code = CAIRN_BEST_LOOPS(ActivationLoops);
  constexpr size_t kBlock = 1024;  // added up in float32; blocks are added up in double
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::array<float, kBlock> exponentials;
  float largest = -kInfinity;
  double sum = 0;  // of exp(logit - largest)
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const absl::Span<const float> block = logits.subspan(begin, kBlock);
    const RowSum row =
        code.exponentials(block.data(), static_cast<int64_t>(block.size()), exponentials.data());
    if (row.largest == -kInfinity) continue;  // all exponentials are 0
    const float now = std::max(largest, row.largest);
    sum = sum * std::exp(double{largest} - double{now}) +
          double{row.sum} * std::exp(double{row.largest} - double{now});
    largest = now;
  }
  return {.largest = largest, .log_sum = static_cast<float>(std::log(sum))};
}

}  // namespace cairn::kernels::cpu
