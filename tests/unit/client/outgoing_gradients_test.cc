#include "client/gradients/outgoing_gradients.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recording_streams.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kRows = 1024, kLarge = kRows * 64;  // enough to be sent at once

// ps/0 stores [small: 2 | other: 3], ps/1 [large].
class OutgoingGradientsTest : public testing::Test {
 protected:
  OutgoingGradientsTest() {
    const std::vector<std::vector<net::Slice>> slices = {
        {{"small", Shape({2}), 0, 2, 0}, {"other", Shape({3}), 0, 3, 2}},
        {{"large", Shape({kRows, 64}), 0, kRows, 0}}};
    layout_ = net::Layout::Create(variables_, slices).value();
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = static_cast<float>(i);
  }

  static v1::Job Float32() {
    v1::Job job;
    job.set_wire(v1::ENCODING_FLOAT32);
    return job;
  }
  static v1::Job TopK() {
    v1::Job job = Float32();
    v1::GradientWire& rule = *job.add_gradient_wire();
    rule.set_variables("large");
    rule.set_encoding(v1::ENCODING_TOPK);
    job.set_topk_fraction(0.001);
    return job;
  }
  // Announces a variable. Returns the servers for which enough was queued.
  static std::vector<int> Announce(OutgoingGradients& outgoing, int variable) {
    std::vector<int> servers;
    outgoing.Announce(variable, [&](int server) { servers.push_back(server); });
    return servers;
  }
  void Begin(OutgoingGradients& outgoing) const {
    outgoing.BeginStep(gradients_);
    for (int server : {0, 1}) outgoing.BeginPush(server);
  }

  const std::vector<net::VariableInfo> variables_ = {
      {"small", Shape({2}), 0}, {"other", Shape({3}), 2}, {"large", Shape({kRows, 64}), 5}};
  net::Layout layout_;
  std::vector<float> gradients_ = std::vector<float>(5 + kLarge);
  WireMetrics metrics_;
  test::RecordingStreams streams_;
  ServerSession session_{streams_};
};

TEST_F(OutgoingGradientsTest, SmallGradientsWaitAndShareAMessage) {
  OutgoingGradients outgoing(Float32(), layout_, variables_, &metrics_);
  Begin(outgoing);
  EXPECT_THAT(Announce(outgoing, 1), IsEmpty());
  EXPECT_THAT(Announce(outgoing, 0), IsEmpty());
  EXPECT_TRUE(outgoing.queued(0));
  EXPECT_FALSE(outgoing.queued(1));
  EXPECT_EQ(outgoing.Send(0, session_, 1), 5 * 4);
  EXPECT_FALSE(outgoing.queued(0));
  ASSERT_THAT(streams_.chunks, SizeIs(1));
  EXPECT_THAT(streams_.chunks[0].values, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(metrics_.push_bytes.value(), 5 * 4);
}

TEST_F(OutgoingGradientsTest, ALargeGradientIsToBeSentAtOnce) {
  OutgoingGradients outgoing(Float32(), layout_, variables_, nullptr);
  Begin(outgoing);
  EXPECT_THAT(Announce(outgoing, 2), ElementsAre(1));
  EXPECT_EQ(outgoing.Send(1, session_, 1), kLarge * 4);
}

TEST_F(OutgoingGradientsTest, SixteenBitsHalveTheBytes) {
  v1::Job job;
  job.set_wire(v1::ENCODING_BFLOAT16);
  OutgoingGradients outgoing(job, layout_, variables_, &metrics_);
  Begin(outgoing);
  Announce(outgoing, 0);
  EXPECT_EQ(outgoing.Send(0, session_, 1), 2 * 2);
  EXPECT_EQ(metrics_.push_float32_bytes.value(), 2 * 4);
}

TEST_F(OutgoingGradientsTest, ARepeatedPushSendsAllGradientsOfTheServer) {
  OutgoingGradients outgoing(Float32(), layout_, variables_, nullptr);
  Begin(outgoing);
  Announce(outgoing, 0);
  outgoing.Send(0, session_, 1);
  outgoing.BeginPush(0);
  EXPECT_FALSE(outgoing.queued(0));
  outgoing.QueueAll(0);
  streams_.chunks.clear();
  EXPECT_EQ(outgoing.Send(0, session_, 2), 5 * 4);
  EXPECT_FALSE(outgoing.queued(1)) << "the other server has its push";
}

// The server must learn that the gradient is zero.
TEST_F(OutgoingGradientsTest, ACompressedGradientOfZerosIsSent) {
  OutgoingGradients outgoing(TopK(), layout_, variables_, nullptr);
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  Begin(outgoing);
  Announce(outgoing, 2);
  EXPECT_TRUE(outgoing.queued(1));
  outgoing.Send(1, session_, 1);
  EXPECT_THAT(streams_.chunks, testing::Not(IsEmpty()));
}

TEST_F(OutgoingGradientsTest, ARepeatedPushSendsCompressedGradientsAgain) {
  OutgoingGradients outgoing(TopK(), layout_, variables_, nullptr);
  Begin(outgoing);
  Announce(outgoing, 2);
  const int64_t bytes = outgoing.Send(1, session_, 1);
  EXPECT_LT(bytes, kLarge * 4 / 100);
  outgoing.BeginPush(1);
  outgoing.QueueAll(1);
  EXPECT_EQ(outgoing.Send(1, session_, 2), bytes);
}

}  // namespace
}  // namespace cairn::client
