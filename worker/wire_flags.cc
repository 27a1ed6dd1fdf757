#include "worker/wire_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "common/core/flags.h"
#include "common/core/status.h"
#include "common/net/codec.h"
#include "common/net/gradient/codec.h"
#include "common/net/gradient/wire_choice.h"

namespace cairn::worker {
namespace {

constexpr double kUsualFraction = 0.01;

std::string CheckWireDtype(std::string& text) {
  return std::string(net::ParseGradientWire(text).status().message());
}

bool Has(const std::vector<v1::GradientWire>& rules, v1::Encoding encoding) {
  return std::any_of(rules.begin(), rules.end(),
                     [&](const v1::GradientWire& rule) { return rule.encoding() == encoding; });
}

}  // namespace

void AddWireFlags(CLI::App& app, WireFlags& flags, const std::string& group) {
  app.add_option(
         FlagNames("wire_dtype"), flags.dtype,
         "Encoding of gradients on the network: float32, bfloat16, float16 (half the bytes), int8 "
         "(a quarter), topk (only the largest elements) or onebit (signs). Encodings by variable name, for "
         "example 'float32,dense*=int8': the last matching pattern applies. Servers always sum and store "
         "float32")
      ->check(CLI::Validator(&CheckWireDtype, ""))
      ->capture_default_str()
      ->type_name("ENCODING|PATTERN=ENCODING,...")
      ->group(group);
  app.add_option(FlagNames("wire_values"), flags.values,
                 "Encoding of variable values that workers receive; auto: as --wire_dtype, or bfloat16 if "
                 "--wire_dtype compresses further or has patterns")
      ->check(OneOf({"auto", "float32", "bfloat16", "float16"}))
      ->capture_default_str()
      ->group(group);
  app.add_option(FlagNames("topk_fraction"), flags.topk_fraction,
                 "--wire_dtype topk: fraction of each gradient's elements that is sent [0.01]")
      ->check(NumberAboveUpTo(0, 1))
      ->type_name("FRACTION")
      ->group(group);
}

absl::Status ValidateWireFlags(const WireFlags& flags) {
  CAIRN_ASSIGN_OR_RETURN(const auto rules, net::ParseGradientWire(flags.dtype));
  if (flags.topk_fraction.has_value() && !Has(rules, v1::ENCODING_TOPK)) {
    return absl::InvalidArgumentError(
        "--topk_fraction needs --wire_dtype topk: otherwise whole gradients are sent");
  }
  return absl::OkStatus();
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
