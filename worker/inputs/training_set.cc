#include "worker/inputs/training_set.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/model/digest.h"

namespace cairn::worker {
namespace {

constexpr int64_t kSampledExamples = 512;

void Append(absl::Span<const float> values, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace

v1::TrainingSet IdentityOf(const data::Dataset& dataset) {
  v1::TrainingSet identity;
  identity.set_examples(dataset.size());
  for (const int64_t extent : dataset.example_shape().dims()) identity.add_example_shape(extent);
  identity.set_targets(data::DescribeTargets(dataset));

  // Computes a digest of digests, so that no buffer is as large as the data set.
  std::string digests, bytes;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    Append(dataset.Target(i), bytes);
    if (bytes.size() < (size_t{1} << 20)) continue;
    digests += Sha256Hex(bytes);
    bytes.clear();
  }
  digests += Sha256Hex(bytes);
  std::vector<float> row(
      static_cast<size_t>(dataset.example_shape().num_elements() + dataset.num_targets() + 1));
  const absl::Span<float> inputs =
      absl::MakeSpan(row).first(static_cast<size_t>(dataset.example_shape().num_elements()));
  const absl::Span<float> target = absl::MakeSpan(row).subspan(inputs.size(), row.size() - inputs.size() - 1);
  const int64_t step = std::max<int64_t>(1, dataset.size() / kSampledExamples);
  for (int64_t i = 0; i < dataset.size(); i += step) {
    row.back() = dataset.Read(i, inputs, target);
    bytes.clear();
    Append(row, bytes);
    digests += Sha256Hex(bytes);
  }
  identity.set_sha256(Sha256Hex(digests));
  return identity;
}

}  // namespace cairn::worker
