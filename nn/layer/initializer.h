// Keras' initializers: how a variable's first values are drawn.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::nn {

// A distribution whose spread may depend on the variable's shape (Keras' VarianceScaling).
struct InitializerSpec {
  enum class Distribution {
    kConstant,         // `center`
    kUniform,          // [center - spread, center + spread)
    kNormal,           // mean `center`, standard deviation `spread`
    kTruncatedNormal,  // kNormal, but values beyond two standard deviations are drawn again
    // `spread` times a matrix [all but the last axis, last axis] with orthonormal rows or columns.
    kOrthogonal,
    kIdentity,  // matrix with `spread` on the diagonal
  };
  enum class Fan {
    kNone,  // `spread` as it is
    kIn,    // VarianceScaling: `spread` is Keras' scale, divided by the fan
    kOut,
    kAverage,
  };
  Distribution distribution = Distribution::kConstant;
  Fan fan = Fan::kNone;
  double center = 0;
  double spread = 0;
  std::optional<uint64_t> seed{};  // from the model file; used in place of the job's seed
  // These elements are 1 instead: the bias of an LSTM's forget gate.
  int64_t ones_begin = 0, ones_end = 0;
};

// From Keras' JSON: a name ("glorot_uniform", "GlorotUniform") or an object with class_name and config.
// INVALID_ARGUMENT says what is wrong; an unknown initializer's error lists the supported ones.
absl::StatusOr<InitializerSpec> ParseInitializer(const nlohmann::json& json);

// INVALID_ARGUMENT if the distribution of `spec` needs a matrix and `shape` is not the shape of a matrix.
absl::Status CheckShape(const InitializerSpec& spec, const Shape& shape);

// The distribution for a variable of this shape, with `spread` resolved and `fan` kNone. Fans are counted as
// in Keras: [in, out] for matrices, times the receptive field for convolutions [..., in, out].
InitializerSpec ResolveFan(const InitializerSpec& spec, const Shape& shape);

// Fills `values` [shape.num_elements()]. They depend only on (seed, variable name). CheckShape() must have
// passed. An orthogonal [m, n] takes m n min(m, n) multiplications.
void Initialize(const InitializerSpec& spec, const Shape& shape, uint64_t seed, absl::string_view variable,
                absl::Span<float> values);

}  // namespace cairn::nn
