#include "worker/options/wire_flags.h"

#include <algorithm>
#include <vector>

#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::worker {
namespace {

constexpr double kUsualFraction = 0.01;

bool Has(const std::vector<v1::GradientWire>& rules, v1::Encoding encoding) {
  return std::any_of(rules.begin(), rules.end(),
                     [&](const v1::GradientWire& rule) { return rule.encoding() == encoding; });
}

}  // namespace

void AddWireFlags(CLI::App& app, WireFlags& flags) {
  AddFlags(app, "Gradient compression",
           {{"--wire_dtype ENCODING|PATTERN=ENCODING,...", &flags.dtype,
             "Encoding of gradients on the network: float32, bfloat16, float16 (half the bytes), int8 (a "
             "quarter), "
             "topk (only the largest elements) or onebit (signs). Encodings by variable name, for example "
             "'float32,dense*=int8': the last matching pattern applies. Servers always sum and store float32",
             ParsedBy(&net::ParseGradientWire)},
            {"--wire_values", &flags.values,
             "Encoding of variable values that workers receive; auto: as --wire_dtype, or bfloat16 if "
             "--wire_dtype "
             "compresses further or has patterns",
             OneOf({"auto", "float32", "bfloat16", "float16"})},
            {"--topk_fraction FRACTION", &flags.topk_fraction,
             "--wire_dtype topk: fraction of each gradient's elements that is sent [0.01]",
             NumberAboveUpTo(0, 1)}});
}

absl::Status ValidateWireFlags(const WireFlags& flags) {
  CAIRN_ASSIGN_OR_RETURN(const auto rules, net::ParseGradientWire(flags.dtype));
  const FlagUse fraction{"--topk_fraction", flags.topk_fraction.has_value()};
  const FlagUse topk{"--wire_dtype topk", Has(rules, v1::ENCODING_TOPK)};
  return CheckRules({{fraction, kNeeds, topk, "otherwise whole gradients are sent"}});
}

absl::Status SetWire(const WireFlags& flags, absl::Span<const net::VariableInfo> variables, v1::Job& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto rules, net::ParseGradientWire(flags.dtype));
  const v1::Encoding first = rules.front().encoding();
  const bool of_all =
      rules.size() == 1 && rules.front().variables() == "*" && net::GradientCodecOf(first) == nullptr;
  job.set_wire(net::EncodingOf(flags.values).value_or(of_all ? first : v1::ENCODING_BFLOAT16));
  if (of_all && job.wire() == first) return absl::OkStatus();
  job.mutable_gradient_wire()->Add(rules.begin(), rules.end());
  if (Has(rules, v1::ENCODING_TOPK)) job.set_topk_fraction(flags.topk_fraction.value_or(kUsualFraction));
  return Annotate(net::CheckGradientWire(job, variables), "--wire_dtype");
}

}  // namespace cairn::worker
