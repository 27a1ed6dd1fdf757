#include "client/rows/outgoing_rows.h"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recording_streams.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Row r is on server r mod S.
class Modulo final : public net::Partitioner {
 public:
  explicit Modulo(int servers) : servers_(servers) {}
  int ServerOf(int64_t row) const override { return static_cast<int>(row % servers_); }

 private:
  const int servers_;
};

class OutgoingRowsTest : public testing::Test {
 protected:
  // Table 1, with rows of one element.
  void Start(int servers, v1::Encoding encoding = v1::ENCODING_FLOAT32) {
    v1::Job job;
    job.set_wire(encoding);
    job.add_tables()->set_row_elements(1);
    tables_ = RowTables::Create(job, servers, [](const v1::Table&, int of_servers) {
                return std::make_unique<Modulo>(of_servers);
              }).value();
    outgoing_.emplace(tables_, &metrics_);
    outgoing_->BeginStep();
  }
  void Push(const std::vector<int64_t>& keys, const std::vector<float>& gradients) {
    ASSERT_EQ(outgoing_->Push({{.table = 1, .keys = keys, .gradients = gradients}}), absl::OkStatus());
  }
  void Want(const std::vector<int64_t>& keys) {
    arriving_.Clear();
    wanted_.resize(keys.size());
    ASSERT_EQ(outgoing_->Want({{.table = 1, .keys = keys, .rows = absl::MakeSpan(wanted_)}}, arriving_),
              absl::OkStatus());
  }
  // The frames that are sent to the server now.
  std::vector<test::RecordingStreams::SentRows> Send(int server) {
    streams_.rows.clear();
    outgoing_->Send(server, session_, 1);
    return streams_.rows;
  }
  static std::vector<int64_t> IdsOf(const test::RecordingStreams::SentRows& sent) {
    std::vector<int64_t> ids(static_cast<size_t>(sent.rows.count()));
    std::memcpy(ids.data(), sent.payload.data(), ids.size() * sizeof(int64_t));
    return ids;
  }

  RowTables tables_;
  WireMetrics metrics_;
  ArrivingRows arriving_;
  std::vector<float> wanted_;
  test::RecordingStreams streams_;
  ServerSession session_{streams_};
  std::optional<OutgoingRows> outgoing_;
};

TEST_F(OutgoingRowsTest, GoToTheirServers) {
  Start(2);
  const std::vector<int64_t> keys = {3, 2, 5, 4};
  const std::vector<float> gradients = {30, 20, 50, 40};
  Push(keys, gradients);
  Want(keys);
  const auto sent = Send(1);
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_FALSE(sent[0].rows.wanted());
  EXPECT_THAT(IdsOf(sent[0]), ElementsAre(3, 5));
  EXPECT_THAT(std::vector<float>(sent[0].payload.begin() + 4, sent[0].payload.end()), ElementsAre(30, 50));
  EXPECT_TRUE(sent[1].rows.wanted());
  EXPECT_THAT(IdsOf(sent[1]), ElementsAre(3, 5));
  EXPECT_EQ(metrics_.push_bytes.value(), 2 * 12 + 2 * 8);
  EXPECT_EQ(metrics_.push_float32_bytes.value(), 2 * 12 + 2 * 8);
  EXPECT_THAT(Send(1), IsEmpty()) << "all has been sent";
  outgoing_->BeginPush(1);
  EXPECT_THAT(Send(1), SizeIs(2)) << "the push is sent again";
}

TEST_F(OutgoingRowsTest, LeaveTheKeysOutThatTheServerKnows) {
  Start(1);
  const std::vector<int64_t> keys = {1, 2, 3}, others = {1, 2, 4};
  const std::vector<float> gradients = {10, 20, 30};
  const auto pushes = [&](const std::vector<int64_t>& pushed, bool with_rows = true) {
    outgoing_->EndStep(with_rows);
    outgoing_->BeginStep();
    Push(pushed, gradients);
    Want(keys);
    const auto sent = Send(0);
    EXPECT_THAT(sent, SizeIs(2));
    EXPECT_THAT(IdsOf(sent[1]), ElementsAre(1, 2, 3));
    return sent[0];
  };
  EXPECT_FALSE(pushes(keys).rows.has_known());
  const auto known = pushes(keys);
  EXPECT_EQ(known.rows.known(), 0);
  EXPECT_EQ(known.rows.count(), 3);
  EXPECT_THAT(known.payload, ElementsAre(10, 20, 30));
  EXPECT_FALSE(pushes(others).rows.has_known()) << "other keys";
  EXPECT_TRUE(pushes(keys).rows.has_known());
  EXPECT_FALSE(pushes(keys, /*with_rows=*/false).rows.has_known()) << "the server may not have kept them";
  EXPECT_TRUE(pushes(keys).rows.has_known());

  outgoing_->OnNewStream(0);
  outgoing_->BeginPush(0);
  EXPECT_THAT(IdsOf(Send(0)[0]), ElementsAre(1, 2, 3)) << "the server of a new stream knows no keys";
  EXPECT_TRUE(pushes(keys).rows.has_known()) << "it has learnt them";

  outgoing_->BeginStep();  // the previous step was given up
  Push(keys, gradients);
  EXPECT_FALSE(Send(0)[0].rows.has_known());
}

TEST_F(OutgoingRowsTest, AreCutIntoFramesAndEncoded) {
  Start(1, v1::ENCODING_BFLOAT16);
  constexpr size_t kRows = 60'000;
  std::vector<int64_t> keys(kRows);
  std::vector<float> gradients(kRows, 1);
  for (size_t i = 0; i < kRows; ++i) keys[i] = static_cast<int64_t>(i);
  Push(keys, gradients);
  const auto sent = Send(0);
  ASSERT_THAT(sent, SizeIs(3));
  size_t rows = 0;
  for (const auto& frame : sent) {
    const auto count = static_cast<size_t>(frame.rows.count());
    EXPECT_EQ(frame.rows.encoding(), v1::ENCODING_BFLOAT16);
    EXPECT_LE(frame.payload.size(), 65'536u);
    EXPECT_EQ(frame.payload.size(), 2 * count + (count + 1) / 2);
    EXPECT_EQ(IdsOf(frame).front(), static_cast<int64_t>(rows));
    rows += count;
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_EQ(metrics_.push_float32_bytes.value(), static_cast<int64_t>(12 * kRows));
}

}  // namespace
}  // namespace cairn::client
