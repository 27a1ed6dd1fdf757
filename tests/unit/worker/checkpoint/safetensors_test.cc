#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/core/files.h"
#include "tests/unit/worker/checkpoint/small_job.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string HeadOf(const std::string& header) {
  const uint64_t length = header.size();
  std::string head(sizeof(length), '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  return head + header;
}

// https://github.com/huggingface/safetensors, "Format".
TEST(Safetensors, FileHasLengthHeaderAndValues) {
  const std::vector<float> kernel = {1, 2}, bias = {3};
  const std::string path = absl::StrCat(testing::TempDir(), "cairn_safetensors_", getpid());
  ASSERT_TRUE(
      WriteSafetensors(path, {{"kernel", {2, 1}, kernel}, {"bias", {1}, bias}}, {{"epoch", "7"}}).ok());
  const std::string file = *ReadFile(path);
  std::filesystem::remove(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  ASSERT_EQ(file.size(), 8 + length + 3 * sizeof(float));
  EXPECT_EQ(file[8], '{');
  EXPECT_EQ(nlohmann::json::parse(file.substr(8, length)), nlohmann::json::parse(R"({
      "__metadata__": {"epoch": "7"},
      "kernel": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
      "bias": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}})"));
  std::vector<float> values(3);
  std::memcpy(values.data(), file.data() + 8 + length, 3 * sizeof(float));
  EXPECT_THAT(values, ElementsAre(1, 2, 3));

  const auto parsed = ParseSafetensorsHead(absl::string_view(file).substr(0, 8 + length), file.size());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[0].name, "kernel");
  EXPECT_EQ(parsed->tensors[0].shape, Shape({2, 1}));
  EXPECT_EQ(parsed->tensors[1].offset, 8 + length + 8);
  EXPECT_EQ(parsed->metadata.at("epoch"), "7");
}

TEST(Safetensors, FailedWriteLeavesNoFile) {
  const std::string directory = absl::StrCat(testing::TempDir(), "cairn_safetensors_dir_", getpid());
  std::filesystem::create_directory(directory);
  std::filesystem::create_directory(directory + "/taken");
  EXPECT_FALSE(WriteSafetensors(directory + "/taken", {}, {}).ok());
  EXPECT_FALSE(WriteSafetensors(directory + "/missing/file", {}, {}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1);
  std::filesystem::remove_all(directory);
}

TEST(Safetensors, PipeIsWrittenToAndNotReplaced) {
  const std::string directory = absl::StrCat(testing::TempDir(), "cairn_safetensors_pipe_", getpid());
  std::filesystem::create_directory(directory);
  const std::string pipe = directory + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<float> bias = {3};
  EXPECT_FALSE(WriteSafetensors(pipe, {{"bias", {1}, bias}}, {}).ok()) << "the pipe has no reader";

  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WriteSafetensors(pipe, {{"bias", {1}, bias}}, {}).ok());
  std::string received(4096, '\0');
  received.resize(static_cast<size_t>(std::max<ssize_t>(read(reader, received.data(), received.size()), 0)));
  close(reader);
  EXPECT_EQ(received, *SafetensorsHead({{"bias", {1}, bias}}, {}) + std::string("\0\0\x40\x40", 4));

  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1) << "no temporary file";
  std::filesystem::remove_all(directory);
}

TEST(Safetensors, InvalidNamesAreRefused) {
  const std::vector<float> one(1);
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsHead({{"a", {1}, one}, {"a", {1}, one}}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsHead({{"__metadata__", {1}, one}}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsHead({{"\xff", {1}, one}}, {}).status()));
}

TEST(Safetensors, EveryRuleOfTheFormatIsChecked) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto outcome = [](const std::string& header, uint64_t data_bytes) {
    const std::string head = HeadOf(header);
    return ParseSafetensorsHead(head, head.size() + data_bytes).status();
  };
  EXPECT_TRUE(outcome("{" + a + "}", 8).ok());
  EXPECT_TRUE(outcome("{}", 0).ok());
  EXPECT_TRUE(outcome(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4).ok()) << "a scalar";
  EXPECT_TRUE(outcome(R"({"a":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})", 0).ok());

  const std::vector<std::tuple<std::string, uint64_t, const char*>> faults = {
      {"{" + a + "}", 7, "its header describes"},
      {"{" + a + "}", 9, "its header describes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, "'a': its values begin at 4"},
      {"{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
       "'b': its values begin at 4"},
      {"{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16,
       "'b': its values begin at 12"},
      {"{" + a + "," + a + "}", 8, "appears twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "takes 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "takes 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "not a list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "not a list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "2^40"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
       "not a list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8, "not two numbers"},
      {R"({"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", 8, "not a string"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "not a string"},
      {R"({"a":7})", 0, "not an object"},
      {R"({"__metadata__":{"a":7}})", 0, "'a' is not a string"},
      {R"({"__metadata__":[]})", 0, "not an object"},
      {"[]", 0, "not a safetensors file"},
      {" {}", 0, "not a safetensors file"},
      {"", 0, "not a safetensors file"},
      {"{\"a", 0, "not valid JSON"},
      {std::string("{") + std::string(300, '['), 0, "not valid JSON"},
  };
  for (const auto& [header, data_bytes, fault] : faults) {
    const absl::Status status = outcome(header, data_bytes);
    EXPECT_TRUE(absl::IsDataLoss(status)) << header << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault)) << header;
  }
  const absl::Status half = outcome(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(half)) << half;
}

TEST(Safetensors, WrongLengthIsFound) {
  std::string head = HeadOf("{}");
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ParseSafetensorsHead(head.substr(0, size), size).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseSafetensorsHead(head, 9).status())) << "a file shorter than its head";
  std::reverse(head.begin(), head.begin() + 8);  // big-endian
  EXPECT_TRUE(absl::IsDataLoss(ParseSafetensorsHead(head, 10).status()));
}

}  // namespace
}  // namespace cairn::worker
