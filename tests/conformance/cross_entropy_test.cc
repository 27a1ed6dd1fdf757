#include <limits>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::LossSums;
using reference::Tensor;

class CrossEntropyConformance : public ConformanceTest {
 protected:
  std::unique_ptr<kernels::DeviceMemory> PutLabels(const std::vector<int32_t>& labels) {
    auto memory = device().Allocate(static_cast<int64_t>(labels.size()), "labels").value();
    EXPECT_TRUE(
        device().CopyToDevice(labels.data(), memory->data(), static_cast<int64_t>(labels.size()) * 4).ok());
    return memory;
  }
  static const int32_t* Labels(kernels::DeviceMemory& memory) {
    return reinterpret_cast<const int32_t*>(memory.data());
  }

  struct Result {
    absl::Status status;
    LossSums sums;
    std::vector<float> gradient;
  };
  Result Run(const Tensor& outputs, const std::vector<int32_t>& labels, bool from_logits,
             bool with_gradient) {
    auto op = device().ops().MakeSparseCrossEntropy(
        {.batch = outputs.shape[0], .classes = outputs.shape[1], .from_logits = from_logits});
    if (!op.ok()) return {op.status(), {}, {}};
    const auto outputs_memory = Put(outputs), labels_memory = PutLabels(labels);
    const auto gradient = Poisoned(outputs.shape.num_elements());
    Result result;
    result.status = (*op)->Run(outputs_memory->data(), Labels(*labels_memory), &result.sums,
                               with_gradient ? gradient->data() : nullptr);
    result.status.Update(device().Synchronize());
    if (result.status.ok() && with_gradient) result.gradient = Get(*gradient, {outputs.shape});
    return result;
  }
};

std::vector<int32_t> CyclicLabels(int64_t batch, int64_t classes) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < batch; ++i) labels.push_back(static_cast<int32_t>(i % classes));
  return labels;
}

double SumOfLosses(const Tensor& outputs, const std::vector<int32_t>& labels, bool from_logits) {
  double sum = 0;
  for (int64_t n = 0; n < outputs.shape[0]; ++n) {
    sum += reference::CrossEntropy(&outputs.values[static_cast<size_t>(n * outputs.shape[1])],
                                   outputs.shape[1], labels[static_cast<size_t>(n)], from_logits);
  }
  return sum;
}

TEST_P(CrossEntropyConformance, LossAndGradientOfManySizes) {
  for (bool from_logits : {true, false}) {
    for (int64_t batch : {1, 2, 64, 65}) {
      for (int64_t classes : {2, 10, 17, 100}) {
        SCOPED_TRACE(testing::Message() << "[" << batch << "," << classes << "] logits " << from_logits);
        Tensor outputs = RandomTensor({batch, classes}, 1);
        if (!from_logits) outputs = reference::Softmax(outputs);
        for (double& value : outputs.values) value = static_cast<float>(value);
        const std::vector<int32_t> labels = CyclicLabels(batch, classes);
        const Result result = Run(outputs, labels, from_logits, true);
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_NEAR(result.sums.loss, SumOfLosses(outputs, labels, from_logits),
                    1e-6 * static_cast<double>(batch * classes));
        EXPECT_EQ(result.sums.examples, batch);

        // The gradient of the mean by central differences in double.
        std::vector<double> expected;
        for (size_t i = 0; i < outputs.values.size(); ++i) {
          constexpr double kStep = 1e-6;
          Tensor high = outputs, low = outputs;
          high.values[i] += kStep;
          low.values[i] -= kStep;
          expected.push_back(
              (SumOfLosses(high, labels, from_logits) - SumOfLosses(low, labels, from_logits)) /
              (2 * kStep * static_cast<double>(batch)));
        }
        ASSERT_EQ(result.gradient.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(result.gradient[i], expected[i], 1e-6 + 1e-5 * std::fabs(expected[i])) << i;
        }
      }
    }
  }
}

TEST_P(CrossEntropyConformance, WithoutGradientTheSumsAreTheSame) {
  const Tensor outputs = RandomTensor({7, 10}, 1);
  const std::vector<int32_t> labels = CyclicLabels(7, 10);
  EXPECT_EQ(Run(outputs, labels, true, false).sums.loss, Run(outputs, labels, true, true).sums.loss);
}

TEST_P(CrossEntropyConformance, OfEqualOutputsTheFirstIsTheAnswer) {
  Tensor outputs({2, 3});
  outputs.values = {1, 2, 2, 0, 0, 0};
  EXPECT_EQ(Run(outputs, {1, 0}, true, false).sums.correct, 2);
  EXPECT_EQ(Run(outputs, {2, 1}, true, false).sums.correct, 0);
}

TEST_P(CrossEntropyConformance, ProbabilitiesAreClippedAsKerasDoes) {
  Tensor outputs({2, 2});
  outputs.values = {0, 1, 1, 0};
  const Result result = Run(outputs, {0, 0}, false, true);
  ASSERT_TRUE(result.status.ok());
  EXPECT_NEAR(result.sums.loss, 16.118095651 + 1.1920929e-7, 1e-5);  // -ln 1e-7, and -ln(1 - 1e-7) in float32
  EXPECT_EQ(result.gradient, (std::vector<float>{0, 0, 0, 0}));      // beyond the clip nothing changes
}

TEST_P(CrossEntropyConformance, HugeLogitsGiveFiniteLosses) {
  Tensor outputs({1, 3});
  outputs.values = {-30000, 30000, 0};
  const Result result = Run(outputs, {0}, true, true);
  EXPECT_EQ(result.sums.loss, 60000);
  EXPECT_EQ(result.gradient, (std::vector<float>{-1, 1, 0}));
}

TEST_P(CrossEntropyConformance, ALabelOutOfRangeIsRefused) {
  const Tensor outputs = RandomTensor({3, 10}, 1);
  for (int32_t label : {-1, 10, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const Result result = Run(outputs, {0, label, 0}, true, true);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(result.status.message().find(std::to_string(label)), absl::string_view::npos) << result.status;
  }
}

INSTANTIATE_CONFORMANCE(CrossEntropyConformance);

}  // namespace
}  // namespace cairn::conformance
