#include "common/net/data_channel/stream/message_reader.h"

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

std::string Front(const DataPrologue& prologue, absl::string_view rest) {
  return absl::StrCat(absl::string_view(BytesOf(prologue).data(), sizeof prologue), rest);
}

class MessageReaderTest : public testing::Test {
 protected:
  void Send(absl::string_view bytes, absl::Span<const int> passed = {}) {
    ASSERT_EQ(SendPassing(ends_.second, {bytes.data(), bytes.size()}, passed), absl::OkStatus());
  }
  // The header of the front message; empty if it has not arrived.
  std::string Header() {
    const auto front = reader_.Front();
    EXPECT_EQ(front.status(), absl::OkStatus());
    if (!front.ok() || !front->has_value()) return "";
    return {(*front)->header.begin(), (*front)->header.end()};
  }
  // The payload of the front message; empty if it has not arrived.
  std::string Payload(size_t bytes) {
    const absl::Span<char> room = reader_.Room(bytes);
    return reader_.ReceivePayload(room).value() ? std::string(room.begin(), room.end()) : "";
  }

  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  MessageReader reader_{ends_.first};
};

TEST_F(MessageReaderTest, AMessageThatArrivesInPartsIsReturnedOnceItsHeaderIsComplete) {
  const std::string message = Front({.header_bytes = 6}, "header");
  for (size_t i = 0; i + 1 < message.size(); ++i) {
    Send(message.substr(i, 1));
    EXPECT_EQ(Header(), "");
    EXPECT_FALSE(reader_.unread());
  }
  Send(message.substr(message.size() - 1));
  EXPECT_EQ(Header(), "header");
  EXPECT_EQ(Header(), "header") << "until Pop()";
  reader_.Pop();
  EXPECT_EQ(Header(), "");
}

TEST_F(MessageReaderTest, PayloadsThatWereReadAheadOrArriveLaterAreComplete) {
  const std::string long_payload(10000, 'l');
  Send(Front({.header_bytes = 1, .payload_bytes = 5}, "ashort") +
       Front({.header_bytes = 1, .payload_bytes = 10000}, "b") + long_payload.substr(0, 7000));
  EXPECT_EQ(Header(), "a");
  EXPECT_EQ(Payload(5), "short");
  reader_.Pop();
  EXPECT_EQ(Header(), "b");
  EXPECT_EQ(Payload(10000), "");
  Send(long_payload.substr(7000) + Front({.header_bytes = 1}, "c"));
  EXPECT_EQ(Header(), "b");
  EXPECT_EQ(Payload(10000), long_payload);
  reader_.Pop();
  EXPECT_EQ(Header(), "c");
}

TEST_F(MessageReaderTest, SizesBeyondTheLimitsAreRefused) {
  const std::vector<std::pair<DataPrologue, std::string>> invalid = {
      {{.header_bytes = kMaxHeaderBytes + 1}, "header of 524289 bytes"},
      {{.payload_bytes = 2 << 20}, "payload of 2097152 bytes"},
      {{.runs = 257}, "payload of 257 runs"},
  };
  for (const auto& [prologue, error] : invalid) {
    ends_ = SocketPair().value();
    MessageReader reader(ends_.first);
    Send(Front(prologue, ""));
    EXPECT_THAT(reader.Front().status().message(), HasSubstr(error));
  }
}

TEST_F(MessageReaderTest, TheEndOfTheSocketIsUnavailable) {
  shutdown(ends_.second.get(), SHUT_WR);
  EXPECT_EQ(reader_.Front().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(MessageReaderTest, DescriptorsAreTakenInOrder) {
  reader_.ReceiveDescriptors();
  const int passed[] = {ends_.first.get()};
  Send(Front({.header_bytes = 1}, "a"), passed);
  EXPECT_EQ(Header(), "a");
  EXPECT_TRUE(reader_.TakeDescriptor().valid());
  EXPECT_FALSE(reader_.TakeDescriptor().valid());
}

}  // namespace
}  // namespace cairn::net
