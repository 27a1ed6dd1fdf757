#include "worker/inputs/training_set.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "data/input_rows.h"
#include "worker/model/digest.h"

namespace cairn::worker {
namespace {

constexpr int64_t kSampledExamples = 512;

void Append(absl::Span<const float> values, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

void Append(const TensorView& tensor, std::string& bytes) {
  bytes.append(static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes()));
}

}  // namespace

v1::TrainingSet IdentityOf(const data::Dataset& dataset, const data::LengthBuckets* buckets) {
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
  data::InputRows inputs(dataset.input_specs(), 1);
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  const int64_t step = std::max<int64_t>(1, dataset.size() / kSampledExamples);
  for (int64_t i = 0; i < dataset.size(); i += step) {
    dataset.Read(i, inputs.Row(0), absl::MakeSpan(target));
    bytes.clear();
    for (const TensorView& input : inputs.First(1)) Append(input, bytes);
    Append(target, bytes);
    constexpr float kUnweighted = 1;
    Append(dataset.weighted() ? dataset.WeightsOf(i) : absl::MakeConstSpan(&kUnweighted, 1), bytes);
    digests += Sha256Hex(bytes);
  }
  if (buckets != nullptr)
    digests += Sha256Hex(std::string(buckets->bucket_of.begin(), buckets->bucket_of.end()));
  identity.set_sha256(Sha256Hex(digests));
  return identity;
}

}  // namespace cairn::worker
