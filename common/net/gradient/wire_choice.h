// Which encoding each variable's gradient travels in: `--wire_dtype`, and what a job says of it. Pure
// functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/net/placement.h"

namespace cairn::net {

// "int8", or "PATTERN=ENCODING,...", where an encoding alone is of all variables: "float32,dense*=int8".
// INVALID_ARGUMENT says which part is wrong.
absl::StatusOr<std::vector<v1::GradientWire>> ParseGradientWire(absl::string_view text);

// Each variable's encoding [variable], as Job.gradient_wire says.
std::vector<v1::Encoding> GradientEncodings(const v1::Job& job, absl::Span<const VariableInfo> variables);
// INVALID_ARGUMENT naming a rule of the job that no variable goes by, or the job's fault: an unknown
// encoding, a fraction that is none.
absl::Status CheckGradientWire(const v1::Job& job, absl::Span<const VariableInfo> variables);

// For people: "float16"; "topk of 1 %, values in bfloat16".
std::string DescribeWire(const v1::Job& job);

// What the job's gradients take of what they take in float32, about.
double GradientBytesPerElement(const v1::Job& job, absl::Span<const VariableInfo> variables);

// How many of a variable's elements top-k takes: at least one.
int64_t MostElements(double fraction, int64_t elements);

}  // namespace cairn::net
