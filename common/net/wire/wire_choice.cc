#include "common/net/wire/wire_choice.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"

namespace cairn::net {
namespace {

// Biases and the scales of normalization layers are few, and matter much.
constexpr int64_t kFewestElements = 1024;

bool MayBeCompressed(const VariableInfo& variable) {
  return variable.shape.rank() >= 2 && variable.shape.num_elements() >= kFewestElements &&
         !variable.moving_average_momentum.has_value();
}

// The last rule that matches, or -1.
int RuleOf(const v1::Job& job, const VariableInfo& variable) {
  for (int rule = job.gradient_wire_size() - 1; rule >= 0; --rule) {
    if (fnmatch(job.gradient_wire(rule).variables().c_str(), variable.name.c_str(), 0) == 0) return rule;
  }
  return -1;
}

bool HasTopK(const v1::Job& job) {
  return std::any_of(job.gradient_wire().begin(), job.gradient_wire().end(),
                     [](const v1::GradientWire& rule) { return rule.encoding() == v1::ENCODING_TOPK; });
}

}  // namespace

absl::StatusOr<std::vector<v1::GradientWire>> ParseGradientWire(absl::string_view text) {
  std::vector<v1::GradientWire> rules;
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    const absl::string_view rule = absl::StripAsciiWhitespace(piece);
    const size_t equals = rule.rfind('=');
    const bool of_all = equals == absl::string_view::npos;
    const absl::string_view name = of_all ? rule : rule.substr(equals + 1);
    const auto encoding = EncodingOf(name);
    if (!encoding.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is not one of float32, bfloat16, float16, int8, topk, onebit"));
    }
    if (equals == 0)
      return absl::InvalidArgumentError(absl::StrCat("'", rule, "': the variables before '=' are missing"));
    v1::GradientWire& added = rules.emplace_back();
    added.set_variables(of_all ? "*" : std::string(rule.substr(0, equals)));
    added.set_encoding(*encoding);
  }
  return rules;
}

std::vector<v1::Encoding> GradientEncodings(const v1::Job& job, absl::Span<const VariableInfo> variables) {
  if (job.gradient_wire().empty()) return std::vector<v1::Encoding>(variables.size(), job.wire());
  std::vector<v1::Encoding> encodings;
  for (const VariableInfo& variable : variables) {
    const int rule = RuleOf(job, variable);
    const v1::Encoding asked = rule < 0 ? v1::ENCODING_FLOAT32 : job.gradient_wire(rule).encoding();
    const bool allowed = GradientCodecOf(asked) == nullptr || MayBeCompressed(variable);
    encodings.push_back(allowed ? asked : v1::ENCODING_FLOAT32);
  }
  return encodings;
}

absl::Status CheckGradientWire(const v1::Job& job, absl::Span<const VariableInfo> variables) {
  for (const v1::GradientWire& rule : job.gradient_wire()) {
    if (GradientCodecOf(rule.encoding()) == nullptr) CAIRN_RETURN_IF_ERROR(CheckEncoding(rule.encoding()));
  }
  if (HasTopK(job) && !(job.topk_fraction() > 0 && job.topk_fraction() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot send a fraction of ", job.topk_fraction(), " of each gradient"));
  }
  std::vector<bool> used(static_cast<size_t>(job.gradient_wire_size()));
  for (const VariableInfo& variable : variables) {
    if (const int rule = RuleOf(job, variable); rule >= 0) used[static_cast<size_t>(rule)] = true;
  }
  for (int rule = 0; rule < job.gradient_wire_size(); ++rule) {
    const v1::GradientWire& idle = job.gradient_wire(rule);
    if (used[static_cast<size_t>(rule)] || idle.variables() == "*") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no variable uses the rule '", idle.variables(), "=", EncodingName(idle.encoding()),
                     "': no name matches, or a later rule matches all of the same variables"));
  }
  return absl::OkStatus();
}

std::string DescribeWire(const v1::Job& job) {
  if (job.gradient_wire().empty()) return EncodingName(job.wire());
  std::string text;
  for (const v1::GradientWire& rule : job.gradient_wire()) {
    absl::StrAppend(&text, text.empty() ? "" : ",",
                    rule.variables() == "*" ? "" : absl::StrCat(rule.variables(), "="),
                    EncodingName(rule.encoding()));
  }
  if (HasTopK(job)) absl::StrAppend(&text, " of ", 100 * job.topk_fraction(), " %");
  absl::StrAppend(&text, ", values in ", EncodingName(job.wire()));
  return text;
}

double GradientBytesPerElement(const v1::Job& job, absl::Span<const VariableInfo> variables) {
  const std::vector<v1::Encoding> encodings = GradientEncodings(job, variables);
  double bytes = 0, elements = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const int64_t count = variables[i].shape.num_elements();
    const GradientCodec* const codec = GradientCodecOf(encodings[i]);
    elements += static_cast<double>(count);
    if (codec != nullptr) {
      bytes += static_cast<double>(codec->MostBytes({0, count}, MostElements(job.topk_fraction(), count)));
    } else {
      bytes += static_cast<double>(count) * (CodecOf(encodings[i]) == nullptr ? 4 : 2);
    }
  }
  return elements == 0 ? sizeof(float) : bytes / elements;
}

int64_t MostElements(double fraction, int64_t elements) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(fraction * static_cast<double>(elements))), 1,
                             std::max<int64_t>(1, elements));
}

}  // namespace cairn::net
