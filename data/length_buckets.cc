#include "data/length_buckets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/core/status.h"

namespace cairn::data {
namespace {

bool IsZero(const void* bytes, int64_t count) {
  const char* const begin = static_cast<const char*>(bytes);
  return std::all_of(begin, begin + count, [](char byte) { return byte == 0; });
}

// Whether the form drops nothing but padding of these inputs and targets.
bool Holds(const BucketForm& form, absl::Span<const TensorView> inputs, absl::Span<const float> targets) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t kept = form.inputs[i].num_elements() * BytesOf(inputs[i].dtype);
    if (!IsZero(static_cast<const char*>(inputs[i].data) + kept, inputs[i].bytes() - kept)) return false;
  }
  for (const KeptPart& part : form.targets) {
    const absl::Span<const float> dropped =
        targets.first(static_cast<size_t>(part.count)).subspan(static_cast<size_t>(part.kept));
    targets.remove_prefix(static_cast<size_t>(part.count));
    const auto is_padding = [&part](float target) { return target == part.padding; };
    if (part.padding.has_value() && !std::all_of(dropped.begin(), dropped.end(), is_padding)) return false;
  }
  return true;
}

int64_t CountKept(absl::Span<const KeptPart> parts) {
  int64_t sum = 0;
  for (const KeptPart& part : parts) sum += part.kept;
  return sum;
}

// Cuts each of the rows in `numbers` to what the parts keep, in place.
void CutRows(absl::Span<const KeptPart> parts, int64_t rows, absl::Span<float> numbers) {
  float* to = numbers.data();
  const float* from = to;
  for (int64_t row = 0; row < rows; ++row) {
    for (const KeptPart& part : parts) {
      std::memmove(to, from, static_cast<size_t>(part.kept) * sizeof(float));
      to += part.kept;
      from += part.count;
    }
  }
}

}  // namespace

int64_t BucketForm::num_targets() const {
  return CountKept(targets);
}
int64_t BucketForm::num_weights() const {
  return CountKept(weights);
}

absl::StatusOr<LengthBuckets> SortIntoBuckets(const Dataset& dataset, std::vector<BucketForm> forms) {
  CAIRN_CHECK(!forms.empty() && forms.size() <= kMaxBuckets);
  LengthBuckets buckets = {.forms = std::move(forms), .bucket_of = {}};
  buckets.bucket_of.reserve(static_cast<size_t>(dataset.size()));
  InputRows inputs(dataset.input_specs(), 1);
  std::vector<float> targets(static_cast<size_t>(dataset.num_targets()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.Read(i, inputs.Row(0), absl::MakeSpan(targets));
    const TensorViews views = inputs.First(1);
    size_t bucket = 0;
    while (bucket + 1 < buckets.forms.size() && !Holds(buckets.forms[bucket], views, targets)) ++bucket;
    buckets.bucket_of.push_back(static_cast<uint8_t>(bucket));
  }
  CAIRN_RETURN_IF_ERROR(dataset.status());
  return buckets;
}

void Cut(const BucketForm& form, int64_t rows, const WholeExamples& examples) {
  if (rows == 0) return;
  examples.inputs.Cut(rows, form.inputs);
  CutRows(form.targets, rows, examples.targets);
  CutRows(form.weights, rows, examples.weights);
}

std::vector<uint32_t> GroupByBucket(absl::Span<const uint32_t> order, absl::Span<const uint8_t> bucket_of,
                                    int64_t run) {
  std::vector<std::vector<uint32_t>> waiting(kMaxBuckets);
  std::vector<uint32_t> grouped;
  grouped.reserve(order.size());
  for (const uint32_t example : order) {
    std::vector<uint32_t>& alike = waiting[bucket_of[example]];
    alike.push_back(example);
    if (static_cast<int64_t>(alike.size()) < run) continue;
    grouped.insert(grouped.end(), alike.begin(), alike.end());
    alike.clear();
  }
  for (const std::vector<uint32_t>& rest : waiting) grouped.insert(grouped.end(), rest.begin(), rest.end());
  return grouped;
}

}  // namespace cairn::data
