#include "worker/split/incoming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn::split {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::StageTensorName Piece(int index, int64_t offset = 0) {
  v1::StageTensorName tensor;
  tensor.set_kind(v1::SPLIT_KIND_GRADIENT);
  tensor.set_index(index);
  tensor.set_offset(offset);
  return tensor;
}

class IncomingTest : public testing::Test {
 protected:
  absl::StatusOr<Incoming::Taken> Take(const v1::StageTensorName& tensor, const std::vector<float>& values,
                                       size_t cut = 0) {
    const absl::Span<const char> bytes(reinterpret_cast<const char*>(values.data()),
                                       values.size() * sizeof(float) - cut);
    return incoming_.Take(tensor, {&bytes, 1});
  }

  Incoming incoming_;
};

TEST_F(IncomingTest, FragmentsAreAssembled) {
  std::vector<float> to(3);
  incoming_.Expect(Piece(4), to.data(), 3);
  EXPECT_FALSE(Take(Piece(4), {1, 2})->whole);
  EXPECT_EQ(incoming_.Find(Piece(4)), nullptr);
  EXPECT_TRUE(Take(Piece(4, 2), {3})->whole);
  EXPECT_EQ(incoming_.Find(Piece(4)), to.data());
  EXPECT_THAT(to, ElementsAre(1, 2, 3));
}

TEST_F(IncomingTest, UnexpectedFragmentsAreRefusedAndWriteNothing) {
  std::vector<float> to(3);
  incoming_.Expect(Piece(4), to.data(), 3);
  EXPECT_THAT(std::string(Take(Piece(5), {1}).status().message()),
              HasSubstr("SPLIT_KIND_GRADIENT 5.0 of micro-batch 0"));
  for (const auto& refused : {Take(Piece(4, 1), {1}), Take(Piece(4), {1, 2, 3, 4}), Take(Piece(4), {}),
                              Take(Piece(4), {1, 2}, /*cut=*/1)}) {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(to, ElementsAre(0, 0, 0));
  incoming_.Clear();
  EXPECT_EQ(Take(Piece(4), {1, 2, 3}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::split
