#include "worker/options/wire_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

const std::vector<net::VariableInfo> kVariables = {{"dense/kernel", Shape({64, 32}), 0},
                                                   {"dense/bias", Shape({32}), 2048}};

v1::Job JobOf(const WireFlags& flags) {
  v1::Job job;
  EXPECT_EQ(SetWire(flags, kVariables, job), absl::OkStatus());
  return job;
}

TEST(WireFlags, EncodingOfAllGradientsIsTheJobsEncoding) {
  EXPECT_EQ(JobOf({}).SerializeAsString(), "");
  v1::Job expected;
  expected.set_wire(v1::ENCODING_FLOAT16);
  EXPECT_EQ(JobOf({.dtype = "float16"}).SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(JobOf({.dtype = "float16", .values = "float16"}).SerializeAsString(),
            expected.SerializeAsString());
}

TEST(WireFlags, WithCompressedGradientsValuesAreBfloat16OrAsRequested) {
  EXPECT_EQ(JobOf({.dtype = "int8"}).wire(), v1::ENCODING_BFLOAT16);
  EXPECT_EQ(JobOf({.dtype = "int8", .values = "float32"}).wire(), v1::ENCODING_FLOAT32);
  EXPECT_EQ(JobOf({.dtype = "int8"}).gradient_wire(0).encoding(), v1::ENCODING_INT8);
  EXPECT_EQ(JobOf({.dtype = "int8"}).topk_fraction(), 0);
  const v1::Job values_alone = JobOf({.values = "bfloat16"});
  EXPECT_EQ(values_alone.wire(), v1::ENCODING_BFLOAT16);
  EXPECT_EQ(values_alone.gradient_wire(0).encoding(), v1::ENCODING_FLOAT32);
}

TEST(WireFlags, TopKFractionDefaultsToAHundredth) {
  EXPECT_EQ(JobOf({.dtype = "float32,*kernel=topk"}).topk_fraction(), 0.01);
  EXPECT_EQ(JobOf({.dtype = "topk", .topk_fraction = 0.5}).topk_fraction(), 0.5);
}

TEST(WireFlags, IncompatibleFlagsAreNamed) {
  EXPECT_THAT(ValidateWireFlags({.dtype = "int8", .topk_fraction = 0.5}).message(),
              HasSubstr("--topk_fraction needs --wire_dtype topk"));
  v1::Job job;
  EXPECT_THAT(SetWire({.dtype = "conv*=int8"}, kVariables, job).message(),
              HasSubstr("--wire_dtype: no variable uses the rule 'conv*=int8'"));
}

}  // namespace
}  // namespace cairn::worker
