#include "ps/rpc/session.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/update_chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two 16-bit numbers as they are sent: in the place of one float.
float InBfloat16(std::vector<float> two) {
  float bits = 0;
  net::CodecOf(v1::ENCODING_BFLOAT16)->Encode(two, reinterpret_cast<char*>(&bits));
  return bits;
}

class RecordedReplies final : public SessionSink {
 public:
  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>&) override {
    if (header.has_done()) done.push_back(header);
    for (const auto& run : payload) values.insert(values.end(), run.begin(), run.end());
  }
  std::vector<v1::ServerHeader> done;
  std::vector<float> values;  // of all chunks
};

// A session with a server that trains two elements asynchronously; worker 0 has joined as incarnation 1.
class SessionTest : public testing::Test {
 protected:
  SessionTest() : server_({.index = 0, .connect_to_leader = nullptr}, clock_) {
    v1::CreateRequest create;
    create.mutable_job()->set_mode(v1::MODE_ASYNC);
    create.mutable_job()->add_workers("worker/0");
    create.mutable_job()->add_servers("host:1");
    create.mutable_job()->add_variable_groups()->add_variables("a");
    create.mutable_job()->set_lease_seconds(30);
    create.mutable_job()->mutable_optimizer()->set_name("SGD");
    (*create.mutable_job()->mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
    for (const net::Slice& slice : Vectors({{"a", 2}})) *create.add_slices() = slice.ToProto();
    server_.Create(create,
                   [this](absl::StatusOr<v1::CreateResponse> response) { layout_ = response->layout(); });
    v1::ClientHeader write = Header(100);
    write.mutable_write()->set_layout(layout_);
    write.mutable_write()->set_initialise(true);
    EXPECT_EQ(session_.OnFrame(write, {}), absl::OkStatus());
    EXPECT_EQ(Chunk(100, 0, {10, 20}), absl::OkStatus());
    EXPECT_EQ(End(100), absl::OkStatus());
    EXPECT_EQ(Last().code(), 0);
    v1::JoinRequest join;
    join.set_task("worker/0");
    server_.Join(join,
                 [](absl::StatusOr<v1::JoinResponse> response) { EXPECT_EQ(response->incarnation(), 1u); });
  }

  static v1::ClientHeader Header(uint64_t id) {
    v1::ClientHeader header;
    header.set_request_id(id);
    return header;
  }
  v1::ClientHeader PushHeader(uint64_t id) const {
    v1::ClientHeader header = Header(id);
    header.mutable_push()->set_layout(layout_);
    header.mutable_push()->set_incarnation(1);
    header.mutable_push()->set_step(static_cast<int64_t>(id));
    header.mutable_push()->set_examples(1);
    header.mutable_push()->set_read_values(true);
    return header;
  }
  absl::Status BeginPush(uint64_t id) { return session_.OnFrame(PushHeader(id), {}); }
  absl::Status Chunk(uint64_t id, int64_t offset, std::vector<float> values) {
    v1::ClientHeader header = Header(id);
    header.mutable_chunk()->set_offset(offset);
    return session_.OnFrame(header, Bytes(std::move(values)));
  }
  absl::Status End(uint64_t id) {
    v1::ClientHeader header = Header(id);
    header.mutable_end();
    return session_.OnFrame(header, {});
  }
  const v1::Done& Last() const { return sink_->done.back().done(); }

  test::FakeClock clock_;
  Server server_;
  std::shared_ptr<RecordedReplies> sink_ = std::make_shared<RecordedReplies>();
  Session session_{server_, sink_};
  uint64_t layout_ = 0;
};

TEST_F(SessionTest, APushIsAnsweredWithTheUpdatedValues) {
  ASSERT_TRUE(BeginPush(1).ok());
  ASSERT_TRUE(Chunk(1, 1, {2}).ok());
  ASSERT_TRUE(Chunk(1, 0, {1}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(sink_->done.back().request_id(), 1u);
  EXPECT_EQ(Last().outcome(), v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(Last().version(), 1);
  EXPECT_TRUE(Last().has_values());
  EXPECT_THAT(sink_->values, ElementsAre(9, 18));
}

TEST_F(SessionTest, APushBringsSettingsOfGroupsForItsUpdateAndLaterOnes) {
  for (const uint64_t step : {1, 2}) {
    v1::ClientHeader push = PushHeader(step);
    push.mutable_push()->set_base_version(static_cast<int64_t>(step) - 1);
    if (step == 1) push.mutable_push()->add_groups()->set_learning_rate(0.5f);
    ASSERT_TRUE(session_.OnFrame(push, {}).ok());
    sink_->values.clear();
    ASSERT_TRUE(Chunk(step, 0, {2, 4}).ok());
    ASSERT_TRUE(End(step).ok());
    EXPECT_EQ(Last().version(), static_cast<int64_t>(step));
  }
  EXPECT_THAT(sink_->values, ElementsAre(8, 16));
}

TEST_F(SessionTest, SettingsOfAWrongNumberOfGroupsFailThePush) {
  v1::ClientHeader push = PushHeader(1);
  for (int group = 0; group < 2; ++group) push.mutable_push()->add_groups();
  ASSERT_TRUE(session_.OnFrame(push, {}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Last().message(), "settings for 2 groups of variables, but the job has 1");
}

TEST_F(SessionTest, SettingsThatTheOptimizerCannotHaveFailThePush) {
  v1::ClientHeader push = PushHeader(1);
  (*push.mutable_push()->add_groups()->mutable_hyperparameters())["momentum"] = 0.5;
  ASSERT_TRUE(session_.OnFrame(push, {}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Last().message(), HasSubstr("group 0: optimizer SGD: hyperparameter 'momentum' changes"));
}

TEST_F(SessionTest, SettingsFromAWorkerThatIsNotTheChiefFailThePush) {
  v1::ClientHeader push = PushHeader(1);
  push.mutable_push()->set_worker(1);
  push.mutable_push()->add_groups()->set_learning_rate(0.5f);
  ASSERT_TRUE(session_.OnFrame(push, {}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Last().message(), HasSubstr("only the chief may set groups"));
}

TEST_F(SessionTest, OnlyChunksOfAnOpenPushHaveADestination) {
  v1::ClientHeader chunk = Header(1);
  chunk.mutable_chunk()->set_offset(1);
  EXPECT_EQ(session_.BeginFrame(chunk, 4).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(BeginPush(1).ok());
  EXPECT_EQ(session_.BeginFrame(chunk, 4)->size(), 4u);
  EXPECT_TRUE(session_.BeginFrame(chunk, 0)->empty());
  EXPECT_TRUE(session_.BeginFrame(chunk, 5)->empty());
  EXPECT_TRUE(session_.BeginFrame(chunk, 8)->empty());
  EXPECT_TRUE(session_.BeginFrame(PushHeader(1), 4)->empty());
  ASSERT_TRUE(Chunk(1, 0, {1, 2}).ok());
  EXPECT_TRUE(session_.BeginFrame(chunk, 4)->empty());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(session_.BeginFrame(chunk, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, APushAndItsAnswerMayBeSentIn16Bits) {
  v1::ClientHeader push = PushHeader(1);
  push.mutable_push()->set_values_encoding(v1::ENCODING_BFLOAT16);
  ASSERT_TRUE(session_.OnFrame(push, {}).ok());
  v1::ClientHeader header = Header(1);
  header.mutable_chunk()->set_encoding(v1::ENCODING_BFLOAT16);
  header.mutable_chunk()->set_count(2);
  ASSERT_TRUE(session_.OnFrame(header, Bytes({InBfloat16({1, 2})})).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().outcome(), v1::OUTCOME_ACCEPTED);
  EXPECT_TRUE(Last().has_values());
  EXPECT_THAT(sink_->values, ElementsAre(InBfloat16({9, 18})));
}

TEST_F(SessionTest, ValuesMayBeReadIn16BitsAllAtOnce) {
  v1::ClientHeader read = Header(1);
  read.mutable_read()->set_layout(layout_);
  read.mutable_read()->set_encoding(v1::ENCODING_BFLOAT16);
  ASSERT_TRUE(session_.OnFrame(read, {}).ok());
  EXPECT_EQ(Last().code(), 0);
  EXPECT_THAT(sink_->values, ElementsAre(InBfloat16({10, 20})));
  read = Header(2);
  read.mutable_read()->set_layout(layout_);
  read.mutable_read()->set_encoding(v1::ENCODING_BFLOAT16);
  read.mutable_read()->set_count(1);
  ASSERT_TRUE(session_.OnFrame(read, {}).ok());
  EXPECT_THAT(Last().message(), HasSubstr("can only be read as float32"));
}

TEST_F(SessionTest, AnUnknownEncodingFailsTheRequest) {
  v1::ClientHeader push = PushHeader(1);
  push.mutable_push()->set_values_encoding(static_cast<v1::Encoding>(9));
  ASSERT_TRUE(session_.OnFrame(push, {}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_THAT(Last().message(), HasSubstr("encoding 9 is unknown"));
  v1::ClientHeader read = Header(2);
  read.mutable_read()->set_layout(layout_);
  read.mutable_read()->set_encoding(static_cast<v1::Encoding>(9));
  ASSERT_TRUE(session_.OnFrame(read, {}).ok());
  EXPECT_THAT(Last().message(), HasSubstr("encoding 9 is unknown"));
}

TEST_F(SessionTest, AMalformedChunkIsCountedAndHasNoEffect) {
  ASSERT_TRUE(BeginPush(1).ok());
  v1::ClientHeader header = Header(1);
  header.mutable_chunk()->set_encoding(v1::ENCODING_TOPK);
  header.mutable_chunk()->set_count(2);
  ASSERT_TRUE(session_.OnFrame(header, Bytes({0})).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_THAT(Last().message(), HasSubstr("is not a list of indices and values"));
  EXPECT_EQ(server_.metrics().malformed_chunks.value(), 1);
  EXPECT_EQ(Last().version(), 0);
}

TEST_F(SessionTest, AWriteInAnEncodingForGradientsIsRefused) {
  v1::ClientHeader write = Header(1);
  write.mutable_write()->set_layout(layout_);
  ASSERT_TRUE(session_.OnFrame(write, {}).ok());
  v1::ClientHeader header = Header(1);
  header.mutable_chunk()->set_encoding(v1::ENCODING_TOPK);
  header.mutable_chunk()->set_count(2);
  ASSERT_TRUE(session_.OnFrame(header, {}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_THAT(Last().message(), HasSubstr("values cannot be sent in topk"));
}

TEST_F(SessionTest, FramesOfRequestsThatAreNotOpenEndTheStream) {
  EXPECT_EQ(Chunk(7, 0, {1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(End(7).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, ARequestThatBeginsTwiceEndsTheStream) {
  ASSERT_TRUE(BeginPush(1).ok());
  EXPECT_EQ(BeginPush(1).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, MoreOpenRequestsThanTheLimitEndTheStream) {
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(BeginPush(id).ok());
  EXPECT_EQ(BeginPush(5).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SessionTest, MoreRequestsThatWaitForTheirAnswerThanTheLimitEndTheStream) {
  const auto read_at_marker = [&](uint64_t id) {
    v1::ClientHeader header = Header(id);
    header.mutable_read()->set_layout(layout_);
    header.mutable_read()->set_marker("later");
    return session_.OnFrame(header, {});
  };
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_TRUE(read_at_marker(id).ok());
  EXPECT_EQ(read_at_marker(17),
            absl::ResourceExhaustedError("more than 16 requests of one session wait for their answer"));
  v1::PlaceMarkerRequest marker;
  marker.set_token("later");
  server_.PlaceMarker(marker,
                      [](absl::StatusOr<v1::PlaceMarkerResponse> response) { EXPECT_TRUE(response.ok()); });
  EXPECT_TRUE(read_at_marker(18).ok()) << "the others are answered";
}

TEST_F(SessionTest, AMarkerWithALongNameFailsTheRequest) {
  v1::ClientHeader header = Header(1);
  header.mutable_read()->set_layout(layout_);
  header.mutable_read()->set_marker(std::string(kMaxMarkerLength + 1, 'a'));
  ASSERT_TRUE(session_.OnFrame(header, {}).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_F(SessionTest, AnUnexpectedPayloadEndsTheStream) {
  EXPECT_EQ(session_.OnFrame(PushHeader(1), Bytes({1})).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, AHeaderWithoutAKindEndsTheStream) {
  EXPECT_EQ(session_.OnFrame(Header(1), {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, AnOutdatedLayoutIsAborted) {
  v1::ClientHeader header = PushHeader(1);
  header.mutable_push()->set_layout(layout_ + 1);
  ASSERT_TRUE(session_.OnFrame(header, {}).ok());
  ASSERT_TRUE(Chunk(1, 0, {1, 1}).ok()) << "the rest of a refused request is skipped";
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kAborted));
}

TEST_F(SessionTest, AnIncompletePushFailsAndIsNotApplied) {
  ASSERT_TRUE(BeginPush(1).ok());
  ASSERT_TRUE(Chunk(1, 0, {1}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Last().message(), HasSubstr("1 of 2 elements received"));
  EXPECT_EQ(server_.JobForLayout(layout_).value()->shard().store().current().version, 0);
}

TEST_F(SessionTest, AChunkThatDoesNotFitFailsTheRequestAtItsEnd) {
  ASSERT_TRUE(BeginPush(1).ok());
  ASSERT_TRUE(Chunk(1, 1, {1, 1}).ok());
  ASSERT_TRUE(End(1).ok());
  EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_F(SessionTest, PushesWithImpossibleFieldsFail) {
  using Change = void (*)(v1::PushBegin&);
  const Change changes[] = {
      [](v1::PushBegin& push) { push.set_worker(-1); },
      [](v1::PushBegin& push) { push.set_worker(1); },
      [](v1::PushBegin& push) { push.set_step(0); },
      [](v1::PushBegin& push) { push.set_incarnation(0); },
      [](v1::PushBegin& push) { push.set_base_version(-1); },
      [](v1::PushBegin& push) { push.set_examples(-1); },
      [](v1::PushBegin& push) { push.set_examples(int64_t{1} << 32); },
  };
  uint64_t id = 0;
  for (const Change change : changes) {
    v1::ClientHeader header = PushHeader(++id);
    change(*header.mutable_push());
    ASSERT_TRUE(session_.OnFrame(header, {}).ok());
    ASSERT_TRUE(Chunk(id, 0, {1, 1}).ok());
    ASSERT_TRUE(End(id).ok());
    EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument))
        << header.ShortDebugString();
  }
}

TEST_F(SessionTest, AReadMayCoverARange) {
  v1::ClientHeader header = Header(1);
  header.mutable_read()->set_layout(layout_);
  header.mutable_read()->set_offset(1);
  header.mutable_read()->set_count(1);
  ASSERT_TRUE(session_.OnFrame(header, {}).ok());
  EXPECT_THAT(sink_->values, ElementsAre(20));
}

TEST_F(SessionTest, AReadOutsideTheValuesFails) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::pair<int64_t, int64_t> ranges[] = {{-1, 1}, {0, 3},       {2, 1},    {3, 0},
                                                {0, -1}, {most, most}, {most, 1}, {1, most}};
  uint64_t id = 0;
  for (const auto& [offset, count] : ranges) {
    v1::ClientHeader header = Header(++id);
    header.mutable_read()->set_layout(layout_);
    header.mutable_read()->set_offset(offset);
    header.mutable_read()->set_count(count);
    ASSERT_TRUE(session_.OnFrame(header, {}).ok());
    EXPECT_EQ(Last().code(), static_cast<int>(absl::StatusCode::kInvalidArgument)) << offset << " " << count;
  }
  EXPECT_THAT(sink_->values, IsEmpty());
}

TEST_F(SessionTest, AReadMayBeAnsweredWhenItsSessionIsGone) {
  // The answer is deferred, here by a marker that has not been written.
  {
    Session brief(server_, sink_);
    v1::ClientHeader header = Header(9);
    header.mutable_read()->set_layout(layout_);
    header.mutable_read()->set_marker("later");
    ASSERT_TRUE(brief.OnFrame(header, {}).ok());
  }
  v1::PlaceMarkerRequest marker;
  marker.set_token("later");
  server_.PlaceMarker(marker,
                      [](absl::StatusOr<v1::PlaceMarkerResponse> response) { EXPECT_TRUE(response.ok()); });
  EXPECT_EQ(sink_->done.back().request_id(), 9u);
  EXPECT_THAT(sink_->values, ElementsAre(10, 20));
}

// The frames for each request, in order.
class OrderedSink final : public SessionSink {
 public:
  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>&) override {
    if (header.has_done()) {
      done.push_back(header.done());
      return;
    }
    if (done.empty() || done.back().version() == 0) return;  // before the first update
    int64_t at = header.chunk().offset();
    for (const auto& run : payload) {
      if (header.chunk().encoding() == v1::ENCODING_FLOAT32) {
        std::copy(run.begin(), run.end(), values.begin() + at);
        at += static_cast<int64_t>(run.size());
        continue;
      }
      ASSERT_EQ(static_cast<int64_t>(run.size()), net::Codec::Floats(header.chunk().count()));
      net::CodecOf(header.chunk().encoding())
          ->Decode(reinterpret_cast<const char*>(run.data()),
                   absl::MakeSpan(values).subspan(static_cast<size_t>(at),
                                                  static_cast<size_t>(header.chunk().count())));
    }
    chunks_after.push_back(done.size());
  }
  std::vector<v1::Done> done;
  std::vector<float> values = std::vector<float>(net::kMinSpeculativeUpdate + 3);
  std::vector<size_t> chunks_after;  // [chunk of values]: number of dones before it
};

// A session of a synchronous job whose updates are speculative.
class SpeculativeSessionTest : public testing::TestWithParam<v1::Encoding> {};
INSTANTIATE_TEST_SUITE_P(Of, SpeculativeSessionTest,
                         testing::Values(v1::ENCODING_FLOAT32, v1::ENCODING_BFLOAT16),
                         [](const auto& test) { return v1::Encoding_Name(test.param); });

TEST_P(SpeculativeSessionTest, ValuesArriveBeforeThePushHasEnded) {
  constexpr int64_t kElements = net::kMinSpeculativeUpdate + 3;
  test::FakeClock clock;
  Server server({.index = 0, .connect_to_leader = nullptr}, clock);
  v1::CreateRequest create;
  v1::Job& job = *create.mutable_job();
  job.set_mode(v1::MODE_SYNC);
  job.add_workers("worker/0");
  job.add_servers("host:1");
  job.set_replicas_to_aggregate(1);
  job.set_lease_seconds(30);
  job.mutable_optimizer()->set_name("SGD");
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
  for (const net::Slice& slice : Vectors({{"a", kElements}})) *create.add_slices() = slice.ToProto();
  uint64_t layout = 0;
  server.Create(create, [&](absl::StatusOr<v1::CreateResponse> response) { layout = response->layout(); });

  const auto sink = std::make_shared<OrderedSink>();
  Session session(server, sink);
  const auto send = [&](uint64_t id, auto set, net::Payload payload = {}) {
    v1::ClientHeader header;
    header.set_request_id(id);
    set(header);
    ASSERT_EQ(session.OnFrame(header, payload), absl::OkStatus());
  };
  const auto chunks = [&](uint64_t id, float value) {
    for (int64_t begin = 0; begin < kElements; begin += net::kMaxPayloadFloats) {
      const int64_t count = std::min(net::kMaxPayloadFloats, kElements - begin);
      send(
          id, [&](v1::ClientHeader& header) { header.mutable_chunk()->set_offset(begin); },
          Bytes(std::vector<float>(static_cast<size_t>(count), value)));
    }
  };
  send(1, [&](v1::ClientHeader& header) {
    header.mutable_write()->set_layout(layout);
    header.mutable_write()->set_initialise(true);
  });
  chunks(1, 10);
  send(1, [](v1::ClientHeader& header) { header.mutable_end(); });
  v1::JoinRequest join;
  join.set_task("worker/0");
  server.Join(join, [](absl::StatusOr<v1::JoinResponse> response) { ASSERT_TRUE(response.ok()); });

  for (int64_t step = 1; step <= 3; ++step) {
    const uint64_t id = static_cast<uint64_t>(step) + 1;
    send(id, [&](v1::ClientHeader& header) {
      v1::PushBegin& push = *header.mutable_push();
      push.set_layout(layout);
      push.set_incarnation(1);
      push.set_step(step);
      push.set_base_version(step - 1);
      push.set_examples(1);
      push.set_read_values(true);
      push.set_values_encoding(GetParam());
    });
    chunks(id, 1);
    const size_t before = sink->done.size();
    if (step > 1) {
      EXPECT_EQ(sink->chunks_after.back(), before) << "no piece has arrived";
    }
    send(id, [](v1::ClientHeader& header) { header.mutable_end(); });
    ASSERT_EQ(sink->done.size(), before + 1);
    EXPECT_EQ(sink->done.back().outcome(), v1::OUTCOME_ACCEPTED);
    EXPECT_EQ(sink->done.back().version(), step);
    EXPECT_TRUE(sink->done.back().has_values());
    if (step > 1) {
      EXPECT_THAT(sink->values, testing::Each(10.0f - static_cast<float>(step)));
    }
  }
  EXPECT_EQ(sink->chunks_after.size(), 2u * 2) << "each piece once, together with its neighbours";
}

}  // namespace
}  // namespace cairn::ps
