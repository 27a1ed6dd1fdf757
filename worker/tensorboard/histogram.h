// The distribution of a variable's elements, in the buckets of TensorFlow's histograms.
#pragma once

#include "absl/types/span.h"
#include "cairn/tensorboard/v1/event.pb.h"

namespace cairn::worker {

// Bucket limits grow by a tenth from 1e-12 to 1e20, on both sides of 0, as in TensorFlow's
// core/lib/histogram. Adjacent empty buckets are merged. Elements that are not finite are ignored.
tensorboard::v1::Histogram HistogramOf(absl::Span<const float> values);

}  // namespace cairn::worker
