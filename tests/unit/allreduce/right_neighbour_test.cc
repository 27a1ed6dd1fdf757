#include "worker/allreduce/right_neighbour.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/peer/chunks.h"

namespace cairn::allreduce {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Records what is sent, by the name of the frame's kind.
class Recorder final : public RingPeer {
 public:
  absl::Status Greet(const v1::GreetRequest&, v1::GreetResponse*, std::chrono::milliseconds) override {
    return absl::OkStatus();
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse&, RingHandler& handler_in) override {
    struct Stream final : RingStream {
      explicit Stream(Recorder& recorder_in) : recorder(recorder_in) {}
      void Send(const v1::RingHeader& header, net::FloatSpans payload,
                const std::shared_ptr<const void>&) override {
        recorder.sent.push_back(absl::StrCat(header.kind_case(), payload.empty() ? "" : " and values"));
      }
      void End(const absl::Status&) override {}
      Recorder& recorder;
    };
    handler = &handler_in;
    return std::make_unique<Stream>(*this);
  }

  std::vector<std::string> sent;
  RingHandler* handler = nullptr;  // of the last stream
};

const std::string kHello = absl::StrCat(v1::RingHeader::kHello),
                  kState = absl::StrCat(v1::RingHeader::kState),
                  kRecord = absl::StrCat(v1::RingHeader::kRecord),
                  kValues = absl::StrCat(v1::RingHeader::kValues, " and values");

v1::RingHeader Record() {
  v1::RingHeader header;
  header.mutable_record();
  return header;
}

class RightNeighbourTest : public testing::Test {
 protected:
  void Connect(int64_t ring_epoch) {
    v1::RingHello hello;
    hello.set_ring_epoch(ring_epoch);
    right_.Connect({}, hello);
  }

  Recorder* const peer_ = new Recorder;  // owned by right_
  std::vector<std::string> calls_;
  RightNeighbour right_{
      std::unique_ptr<RingPeer>(peer_),
      {.on_closed = [this](int64_t ring_epoch,
                           const absl::Status&) { calls_.push_back(absl::StrCat("closed ", ring_epoch)); },
       .on_bye = [this] { calls_.emplace_back("bye"); }}};
};

TEST_F(RightNeighbourTest, HeadersWaitUntilTheStreamIsOpen) {
  right_.Send(1, Record(), {}, nullptr);
  Connect(1);
  EXPECT_THAT(peer_->sent, ElementsAre(kHello));
  EXPECT_EQ(right_.stream(), nullptr);
  right_.Open({});
  EXPECT_THAT(peer_->sent, ElementsAre(kHello, kState, kRecord));
  right_.Send(1, Record(), {}, nullptr);
  EXPECT_THAT(peer_->sent, ElementsAre(kHello, kState, kRecord, kRecord));
}

TEST_F(RightNeighbourTest, FramesOfAnEndedRingEpochAreDropped) {
  right_.Send(1, Record(), {}, nullptr);
  EXPECT_EQ(right_.BeginEpoch(2), nullptr) << "no stream was open";
  right_.Send(1, Record(), {}, nullptr);
  Connect(2);
  right_.Open({});
  right_.Send(1, Record(), {}, nullptr);
  EXPECT_THAT(peer_->sent, ElementsAre(kHello, kState));
}

TEST_F(RightNeighbourTest, TheStreamOfAnEndedRingEpochIsReturnedForTheReason) {
  Connect(1);
  right_.Open({});
  EXPECT_NE(right_.BeginEpoch(2), nullptr);
  EXPECT_EQ(right_.stream(), nullptr);
  EXPECT_TRUE(right_.connected()) << "until it is retired";
}

TEST_F(RightNeighbourTest, AnEndedStreamIsRetiredAtOnce) {
  Connect(1);
  peer_->handler->OnClosed(absl::UnavailableError("gone"));
  EXPECT_TRUE(right_.closed());
  EXPECT_THAT(calls_, ElementsAre("closed 1"));
  right_.Retire();
  EXPECT_FALSE(right_.connected());
}

TEST_F(RightNeighbourTest, ByeBelongsToARingEpoch) {
  Connect(1);
  v1::RingHeader bye;
  bye.mutable_bye();
  EXPECT_TRUE(peer_->handler->OnFrame(bye, {}).ok());
  EXPECT_TRUE(right_.bye());
  EXPECT_THAT(calls_, ElementsAre("bye"));
  right_.BeginEpoch(2);
  EXPECT_FALSE(right_.bye());
}

TEST_F(RightNeighbourTest, AnyOtherFrameOnTheStreamIsRefused) {
  Connect(1);
  EXPECT_TRUE(absl::IsInvalidArgument(peer_->handler->OnFrame(Record(), {})));
  EXPECT_THAT(calls_, IsEmpty());
}

TEST_F(RightNeighbourTest, ValuesAreSentInChunks) {
  Connect(1);
  right_.Open({});
  right_.SendValues(1, std::make_shared<const AlignedBuffer>(kMaxChunkFloats + 1));
  EXPECT_THAT(peer_->sent, ElementsAre(kHello, kState, kValues, kValues));
}

}  // namespace
}  // namespace cairn::allreduce
