#include "client/gradients/compressed_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/core/random.h"
#include "common/net/wire/received_elements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::Each;

constexpr int64_t kRows = 1700, kColumns = 40;  // 68,000 elements: three chunks of top-k
constexpr int64_t kKernel = kRows * kColumns, kSmall = 5;

// A bias and a kernel, which is split between servers at row 700.
class CompressedGradientsTest : public testing::Test {
 protected:
  CompressedGradientsTest() {
    const std::vector<std::vector<net::Slice>> slices = {
        {{"bias", Shape({kSmall}), 0, kSmall, 0}, {"kernel", Shape({kRows, kColumns}), 0, 700, kSmall}},
        {{"kernel", Shape({kRows, kColumns}), 700, kRows, 0}}};
    layout_ = net::Layout::Create(variables_, slices).value();
  }

  CompressedGradients Of(v1::Encoding encoding, double fraction = 0.01) {
    const std::vector<v1::Encoding> encodings = {v1::ENCODING_FLOAT32, encoding};
    return CompressedGradients(layout_, variables_, encodings, fraction, &metrics_);
  }

  static std::vector<float> Gradient(int seed) {
    std::vector<float> gradient;
    Random random(static_cast<uint64_t>(seed), "gradient");
    for (int64_t i = 0; i < kSmall + kKernel; ++i) gradient.push_back(random.NextUniform() - 0.5f);
    return gradient;
  }

  // The elements that the servers decode from the kernel's chunks: each element once.
  std::vector<float> Sent(const CompressedGradients& compressed) {
    std::vector<float> sent(kKernel, std::numeric_limits<float>::quiet_NaN());
    for (int server = 0; server < 2; ++server) {
      for (const auto& ready : compressed.ready(server)) {
        const absl::Span<const char> run(reinterpret_cast<const char*>(ready.payload.data()),
                                         ready.payload.size() * 4);
        const auto elements = net::ReceivedElements::Of(ready.chunk, {&run, 1});
        EXPECT_EQ(elements.status(), absl::OkStatus());
        const int64_t at = ready.chunk.offset() - (server == 0 ? kSmall : -700 * kColumns);
        const auto room =
            absl::MakeSpan(sent).subspan(static_cast<size_t>(at), static_cast<size_t>(elements->count()));
        EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](float value) { return std::isnan(value); }));
        EXPECT_EQ(elements->Copy(0, room), absl::OkStatus());
      }
    }
    return sent;
  }

  std::vector<float> Step(CompressedGradients& compressed, const std::vector<float>& gradient,
                          const std::vector<bool>& counted = {true, true}) {
    compressed.BeginStep();
    EXPECT_TRUE(compressed.Compress(1, gradient));
    const std::vector<float> sent = Sent(compressed);
    compressed.EndStep(counted);
    return sent;
  }

  const std::vector<net::VariableInfo> variables_ = {{"bias", Shape({kSmall}), 0},
                                                     {"kernel", Shape({kRows, kColumns}), kSmall}};
  net::Layout layout_;
  WireMetrics metrics_;
};

TEST_F(CompressedGradientsTest, VariablesWithOtherEncodingsAreIgnored) {
  CompressedGradients compressed = Of(v1::ENCODING_INT8);
  compressed.BeginStep();
  EXPECT_FALSE(compressed.Compress(0, Gradient(1)));
  EXPECT_TRUE(compressed.ready(0).empty());
}

TEST_F(CompressedGradientsTest, TopKSelectsTheLargestElementsAcrossServers) {
  CompressedGradients compressed = Of(v1::ENCODING_TOPK);
  const std::vector<float> gradient = Gradient(1), sent = Step(compressed, gradient);
  int64_t travelled = 0;
  float least = 1, most = 0;
  for (int64_t i = 0; i < kKernel; ++i) {
    const float value = gradient[static_cast<size_t>(kSmall + i)], there = sent[static_cast<size_t>(i)];
    if (there != 0) {
      ASSERT_EQ(there, value);
      ++travelled;
      least = std::min(least, std::abs(value));
    } else {
      most = std::max(most, std::abs(value));
    }
  }
  EXPECT_EQ(travelled, kKernel / 100);
  EXPECT_GE(least, most);
}

TEST_F(CompressedGradientsTest, TheResidualIsDelayedAndNotLost) {
  for (const auto encoding : {v1::ENCODING_TOPK, v1::ENCODING_ONEBIT}) {
    CompressedGradients compressed = Of(encoding, 0.25);
    std::vector<double> given(kKernel), came(kKernel);
    for (int step = 0; step < 12; ++step) {
      const std::vector<float> gradient = Gradient(step), sent = Step(compressed, gradient);
      for (size_t i = 0; i < came.size(); ++i) {
        given[i] += gradient[static_cast<size_t>(kSmall) + i];
        came[i] += sent[i];
      }
    }
    // The difference to the sum is the residual: a gradient of zeros, sent completely, brings it.
    std::vector<float> last;
    if (encoding == v1::ENCODING_ONEBIT) {
      for (size_t i = 0; i < came.size(); ++i) ASSERT_LT(std::abs(given[i] - came[i]), 8);
    } else {
      const std::vector<float> zeros(static_cast<size_t>(kSmall + kKernel));
      for (int step = 0; step < 4; ++step) {
        last = Step(compressed, zeros);
        for (size_t i = 0; i < came.size(); ++i) came[i] += last[i];
      }
      for (size_t i = 0; i < came.size(); ++i) ASSERT_NEAR(given[i], came[i], 1e-5) << i;
      EXPECT_THAT(Step(compressed, zeros), Each(0.0f));
    }
  }
}

TEST_F(CompressedGradientsTest, AnUncountedStepLeavesTheResidualUnchanged) {
  CompressedGradients compressed = Of(v1::ENCODING_TOPK), same = Of(v1::ENCODING_TOPK);
  Step(compressed, Gradient(1));
  Step(same, Gradient(1));
  Step(compressed, Gradient(2), {false, false});
  EXPECT_EQ(Step(compressed, Gradient(3)), Step(same, Gradient(3)));
  Step(compressed, Gradient(4), {false, true});
  Step(same, Gradient(4), {true, true});
  EXPECT_NE(Step(compressed, Gradient(5)), Step(same, Gradient(5)));
}

TEST_F(CompressedGradientsTest, AVariableWithANumberThatIsNotFiniteIsNotCompressed) {
  for (const auto encoding : {v1::ENCODING_INT8, v1::ENCODING_TOPK, v1::ENCODING_ONEBIT}) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      CompressedGradients compressed = Of(encoding);
      std::vector<float> gradient = Gradient(1);
      gradient[kSmall + 12345] = bad;
      compressed.BeginStep();
      EXPECT_FALSE(compressed.Compress(1, gradient));
      EXPECT_FALSE(compressed.compressed(1));
      EXPECT_TRUE(compressed.ready(0).empty());
      compressed.EndStep({true, true});
      // No residual of it is kept.
      CompressedGradients fresh = Of(encoding);
      EXPECT_EQ(Step(compressed, Gradient(2)), Step(fresh, Gradient(2)));
    }
  }
}

TEST_F(CompressedGradientsTest, TheErrorIsTheFractionThatIsNotSent) {
  CompressedGradients compressed = Of(v1::ENCODING_TOPK, 1);
  std::vector<float> gradient(static_cast<size_t>(kSmall + kKernel));
  gradient[kSmall] = 4;
  gradient[kSmall + 60000] = -3;
  Step(compressed, gradient);
  EXPECT_EQ(metrics_.error(), 0);
  CompressedGradients one = Of(v1::ENCODING_TOPK, 1e-9);
  metrics_.squares = 0;
  Step(one, gradient);
  EXPECT_DOUBLE_EQ(metrics_.error(), 3.0 / 5);
}

}  // namespace
}  // namespace cairn::client
