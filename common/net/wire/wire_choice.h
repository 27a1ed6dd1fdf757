// Chooses the encoding of each variable's gradient, from `--wire_dtype` and from the job. Pure functions; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/placement.h"

namespace cairn::net {

// Parses "int8" or "PATTERN=ENCODING,...", where an encoding alone applies to all variables:
// "float32,dense*=int8". INVALID_ARGUMENT names the invalid rule.
absl::StatusOr<std::vector<v1::GradientWire>> ParseGradientWire(absl::string_view text);

// The encoding of each variable's gradient [variable], according to Job.gradient_wire.
std::vector<v1::Encoding> GradientEncodings(const v1::Job& job, absl::Span<const VariableInfo> variables);
// INVALID_ARGUMENT naming a rule of the job that no variable uses, an unknown encoding, or an invalid
// fraction.
absl::Status CheckGradientWire(const v1::Job& job, absl::Span<const VariableInfo> variables);

// For messages: "float16"; "topk of 1 %, values in bfloat16".
std::string DescribeWire(const v1::Job& job);

// The approximate size of the job's gradients in bytes per element.
double GradientBytesPerElement(const v1::Job& job, absl::Span<const VariableInfo> variables);

// The number of a variable's elements that top-k sends: at least one.
int64_t MostElements(double fraction, int64_t elements);

}  // namespace cairn::net
