#include "kernels/cpu/linear/batch_sums.h"

#include <gmock/gmock.h>

#include <vector>

#include "common/core/random.h"

namespace cairn::kernels::cpu {
namespace {

struct Case {
  int64_t m, n, k, a_stride, b_stride, c_stride;
};

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  Random random(seed, "batch_sums_test");
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.NextUniform(-0.5f, 0.5f);
  return values;
}

class TransposedMultiplierTest : public testing::TestWithParam<int> {  // threads
 protected:
  onednn::Context context_{GetParam(), ElementType::kFloat32};
};

TEST_P(TransposedMultiplierTest, ProductsOfPartsOfMatricesAgreeWithTheirDefinition) {
  for (const Case& c :
       {Case{5, 7, 300, 256, 7, 7}, Case{5, 7, 300, 5, 512, 9}, Case{40, 33, 129, 256, 1024, 33},
        Case{256, 3, 513, 256, 3, 4}, Case{6, 4, 20, 256, 256, 4}, Case{6, 4, 600, 6, 4, 4}}) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k << ", strides " << c.a_stride
                                    << ", " << c.b_stride << ", " << c.c_stride);
    const std::vector<float> a = RandomFloats(c.k * c.a_stride, 1), b = RandomFloats(c.k * c.b_stride, 2);
    std::vector<float> product(static_cast<size_t>(c.m * c.c_stride), 77.0f);
    TransposedMultiplier multiplier(context_, {.m = c.m,
                                               .n = c.n,
                                               .k = c.k,
                                               .a = {nullptr, c.a_stride},
                                               .b = {nullptr, c.b_stride},
                                               .c = {nullptr, c.c_stride}});
    ASSERT_TRUE(multiplier.Run(a.data(), b.data(), product.data()).ok());
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.c_stride; ++j) {
        double expected = j < c.n ? 0 : 77;  // what is between the rows is not written
        for (int64_t row = 0; row < c.k && j < c.n; ++row)
          expected += double{a[static_cast<size_t>(row * c.a_stride + i)]} *
                      b[static_cast<size_t>(row * c.b_stride + j)];
        ASSERT_NEAR(product[static_cast<size_t>(i * c.c_stride + j)], expected, 1e-4) << i << ", " << j;
      }
    }
  }
}

TEST_P(TransposedMultiplierTest, SumsOfRowsAreExactForWholeNumbers) {
  constexpr int64_t kRows = 37, kWidth = 300, kStride = 512;
  std::vector<float> rows(kRows * kStride), sums(kWidth + 1, -1.0f), expected(kWidth + 1, 0.0f);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 17);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < kWidth; ++j)
      expected[static_cast<size_t>(j)] += rows[static_cast<size_t>(row * kStride + j)];
  }
  expected.back() = -1.0f;
  SumRows(context_, {rows.data(), kStride}, kRows, kWidth, sums.data());
  EXPECT_EQ(sums, expected);
}

INSTANTIATE_TEST_SUITE_P(Threads, TransposedMultiplierTest, testing::Values(1, 2));

}  // namespace
}  // namespace cairn::kernels::cpu
