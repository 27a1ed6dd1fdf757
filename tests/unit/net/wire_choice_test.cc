#include "common/net/wire/wire_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<VariableInfo> kVariables = {{"conv/kernel", Shape({3, 3, 8, 16}), 0},
                                              {"conv/bias", Shape({2048}), 1152},
                                              {"dense/kernel", Shape({64, 32}), 3200},
                                              {"dense_1/kernel", Shape({32, 8}), 5248},
                                              {"norm/moving_mean", Shape({64, 32}), 5504, 0.99f}};

v1::Job JobOf(absl::string_view text) {
  v1::Job job;
  const auto rules = ParseGradientWire(text).value();
  job.mutable_gradient_wire()->Add(rules.begin(), rules.end());
  job.set_topk_fraction(0.01);
  job.set_wire(v1::ENCODING_BFLOAT16);
  return job;
}

TEST(WireChoice, OneEncodingAppliesToAllLargeMatricesAndFilters) {
  EXPECT_THAT(GradientEncodings(JobOf("int8"), kVariables),
              ElementsAre(v1::ENCODING_INT8, v1::ENCODING_FLOAT32, v1::ENCODING_INT8, v1::ENCODING_FLOAT32,
                          v1::ENCODING_FLOAT32));
}

TEST(WireChoice, WithoutAChoiceGradientsUseTheEncodingOfValues) {
  v1::Job job;
  job.set_wire(v1::ENCODING_FLOAT16);
  EXPECT_THAT(GradientEncodings(job, kVariables), testing::Each(v1::ENCODING_FLOAT16));
}

TEST(WireChoice, TheLastMatchingRuleCountsAndOthersAreFloat32) {
  EXPECT_THAT(GradientEncodings(JobOf("dense*=topk,dense_1/*=bfloat16"), kVariables),
              ElementsAre(v1::ENCODING_FLOAT32, v1::ENCODING_FLOAT32, v1::ENCODING_TOPK,
                          v1::ENCODING_BFLOAT16, v1::ENCODING_FLOAT32));
  EXPECT_THAT(GradientEncodings(JobOf("float16, conv*=onebit"), kVariables),
              ElementsAre(v1::ENCODING_ONEBIT, v1::ENCODING_FLOAT32, v1::ENCODING_FLOAT16,
                          v1::ENCODING_FLOAT16, v1::ENCODING_FLOAT16));
}

TEST(WireChoice, ARuleWithoutAMatchingVariableIsRefused) {
  EXPECT_EQ(CheckGradientWire(JobOf("float32,dense*=int8"), kVariables), absl::OkStatus());
  EXPECT_EQ(CheckGradientWire(JobOf("int8,*=topk"), kVariables), absl::OkStatus());
  EXPECT_THAT(CheckGradientWire(JobOf("dens=int8"), kVariables).message(),
              HasSubstr("no variable uses the rule 'dens=int8'"));
  EXPECT_THAT(CheckGradientWire(JobOf("dense*=int8,*=float32"), kVariables).message(),
              HasSubstr("'dense*=int8': no name matches, or a later rule matches all of the same variables"));
}

TEST(WireChoice, AnUntrustedJobIsChecked) {
  v1::Job job = JobOf("topk");
  for (const double fraction : {0.0, -1.0, 1.5, std::nan("")}) {
    job.set_topk_fraction(fraction);
    EXPECT_THAT(CheckGradientWire(job, kVariables).message(), HasSubstr("of each gradient")) << fraction;
  }
  job.mutable_gradient_wire(0)->set_encoding(static_cast<v1::Encoding>(9));
  EXPECT_THAT(CheckGradientWire(job, kVariables).message(), HasSubstr("encoding 9 is unknown"));
}

TEST(WireChoice, FaultsOfTheTextAreNamed) {
  EXPECT_THAT(ParseGradientWire("int4").status().message(), HasSubstr("'int4' is not one of float32"));
  EXPECT_THAT(ParseGradientWire("").status().message(), HasSubstr("'' is not one of"));
  EXPECT_THAT(ParseGradientWire("dense*=int8,").status().message(), HasSubstr("'' is not one of"));
  EXPECT_THAT(ParseGradientWire("=int8").status().message(),
              HasSubstr("the variables before '=' are missing"));
}

TEST(WireChoice, DescribesTheChoice) {
  EXPECT_EQ(DescribeWire(JobOf("float32,dense*=topk")), "float32,dense*=topk of 1 %, values in bfloat16");
}

TEST(WireChoice, BytesAreCountedOverAllVariables) {
  // 1152 + 2048 elements take one byte each and a float for each 256; the other 4352 take four bytes each.
  const double bytes = 1152 + 5 * 4 + 2048 + 8 * 4 + 4 * (2048 + 256 + 2048);
  EXPECT_DOUBLE_EQ(GradientBytesPerElement(JobOf("int8"), kVariables),
                   bytes / (1152 + 2048 + 2048 + 256 + 2048));
}

TEST(WireChoice, TopKTakesAtLeastOneElement) {
  EXPECT_EQ(MostElements(0.01, 5), 1);
  EXPECT_EQ(MostElements(0.01, 101), 2);
  EXPECT_EQ(MostElements(1, 101), 101);
}

}  // namespace
}  // namespace cairn::net
