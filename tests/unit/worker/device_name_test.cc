#include "worker/devices/device_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/status.h"

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* text;
  const char* printed;  // by ToString()
};

// TensorFlow's rules: open parts, stars, the old short forms, upper case.
constexpr Case kNames[] = {
    {"/job:worker/replica:0/task:3/device:GPU:1", "/job:worker/replica:0/task:3/device:GPU:1"},
    {"/job:worker/replica:1/task:3/device:CPU:0", "/job:worker/replica:1/task:3/device:CPU:0"},
    {"/job:ps/replica:0/task:0/cpu:0", "/job:ps/replica:0/task:0/device:CPU:0"},
    {"/job:ps/replica:0/task:0/gpu:7", "/job:ps/replica:0/task:0/device:GPU:7"},
    {"/job:localhost/replica:0/task:0/device:XLA_CPU:0", "/job:localhost/replica:0/task:0/device:XLA_CPU:0"},
    {"/job:worker/task:3/device:GPU:1", "/job:worker/task:3/device:GPU:1"},
    {"/job:worker/device:GPU:1", "/job:worker/device:GPU:1"},
    {"/job:worker/replica:2", "/job:worker/replica:2"},
    {"/job:worker/task:0", "/job:worker/task:0"},
    {"/job:worker", "/job:worker"},
    {"/job:Worker_2", "/job:Worker_2"},
    {"/job:W", "/job:W"},
    {"/replica:4", "/replica:4"},
    {"/task:5", "/task:5"},
    {"/task:2147483647", "/task:2147483647"},
    {"/replica:1/task:2", "/replica:1/task:2"},
    {"/task:2/job:worker", "/job:worker/task:2"},
    {"/device:GPU:1/job:worker", "/job:worker/device:GPU:1"},
    {"/gpu:1/task:2/job:a", "/job:a/task:2/device:GPU:1"},
    {"/device:GPU:0", "/device:GPU:0"},
    {"/device:gpu:0", "/device:GPU:0"},
    {"/device:Gpu:0", "/device:GPU:0"},
    {"/device:CPU:1", "/device:CPU:1"},
    {"/device:TPU:3", "/device:TPU:3"},
    {"/device:tpu_system:3", "/device:TPU_SYSTEM:3"},
    {"/device:GPU", "/device:GPU:*"},
    {"/device:GPU:*", "/device:GPU:*"},
    {"/device:*:2", "/device:*:2"},
    {"/device:*", ""},
    {"/device:*:*", ""},
    {"/gpu:0", "/device:GPU:0"},
    {"/GPU:0", "/device:GPU:0"},
    {"/cpu:0", "/device:CPU:0"},
    {"/CPU:12", "/device:CPU:12"},
    {"/cpu:*", "/device:CPU:*"},
    {"/gpu:*", "/device:GPU:*"},
    {"/gpu", "/device:GPU:*"},
    {"/cpu", "/device:CPU:*"},
    {"/gpu:01", "/device:GPU:1"},
    {"GPU:3", "/device:GPU:3"},
    {"gpu:3", "/device:GPU:3"},
    {"CPU:0", "/device:CPU:0"},
    {"cpu", "/device:CPU:*"},
    {"GPU", "/device:GPU:*"},
    {"device:GPU:2", "/device:GPU:2"},
    {"job:worker", "/job:worker"},
    {"job:worker/task:1/gpu:0", "/job:worker/task:1/device:GPU:0"},
    {"/job:*", ""},
    {"/job:*/task:1", "/task:1"},
    {"/replica:*", ""},
    {"/task:*", ""},
    {"/job:*/replica:*/task:*/device:*:*", ""},
    {"/job:worker/replica:*/task:1/device:GPU:*", "/job:worker/task:1/device:GPU:*"},
    {"/JOB:a/TASK:1", "/job:a/task:1"},
    {"/", ""},
    {"", ""},
};

TEST(ParseDeviceName, ReadsTensorFlowsNotationsAndPrintsThemInFull) {
  for (const auto& [text, printed] : kNames) {
    const auto name = ParseDeviceName(text);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->ToString(), printed) << text;
  }
}

TEST(ParseDeviceName, PrintedNamesParseToTheSameName) {
  for (const auto& [text, printed] : kNames) {
    EXPECT_EQ(ParseDeviceName(printed).value(), ParseDeviceName(text).value()) << text;
  }
}

TEST(ParseDeviceName, FaultsNameTheWrongPart) {
  const Case kFaults[] = {
      {"//", "an empty part"},
      {"/gpu:0/", "an empty part"},
      {"/job:a//gpu:0", "an empty part"},
      {"tpu:0", "its part 'tpu:0' is none of"},
      {"/room:1/gpu:0", "its part 'room:1' is none of"},
      {"/job:worker/tsk:0/device:GPU:0", "its part 'tsk:0' is none of"},
      {"gpu0", "its part 'gpu0' is none of"},
      {"*", "its part '*' is none of"},
      {"gpu:", "its part 'gpu:' has no number"},
      {"gpu:x", "its part 'gpu:x' has no number"},
      {"gpu:-1", "its part 'gpu:-1' has no number"},
      {"gpu:+1", "its part 'gpu:+1' has no number"},
      {"gpu: 1", "its part 'gpu: 1' has no number"},
      {"gpu:1 ", "its part 'gpu:1 ' has no number"},
      {"gpu:1x", "its part 'gpu:1x' has no number"},
      {"gpu:**", "its part 'gpu:**' has no number"},
      {"gpu:2147483648", "its part 'gpu:2147483648' has no number"},
      {"cpu:99999999999999999999", "has no number"},
      {"gpu:0:1", "its part 'gpu:0:1' is not gpu:N"},
      {"/task:x/gpu:0", "its part 'task:x' has no number"},
      {"/task/gpu:0", "its part 'task' is not task:N"},
      {"/task:1:2", "its part 'task:1:2' is not task:N"},
      {"/replica:/gpu:0", "its part 'replica:' has no number"},
      {"/replica", "its part 'replica' is not replica:N"},
      {"/job:/gpu:0", "its part 'job:' has no job name"},
      {"/job", "its part 'job' is not job:NAME"},
      {"/job:3a", "its part 'job:3a' has no job name"},
      {"/job:_a", "its part 'job:_a' has no job name"},
      {"/job:a b", "its part 'job:a b' has no job name"},
      {"/job:a:1", "its part 'job:a:1' is not job:NAME"},
      {"device", "its part 'device' is not device:TYPE"},
      {"device:", "its part 'device:' has no type such as"},
      {"/device::0", "its part 'device::0' has no type such as"},
      {"/device:0", "its part 'device:0' has no type such as"},
      {"/device:GPU:", "its part 'device:GPU:' has no number"},
      {"/device:GPU:0:0", "its part 'device:GPU:0:0' is not device:TYPE"},
      {"/gpu:0/cpu:0", "its part 'cpu:0' repeats the type"},
      {"/device:GPU:0/gpu:0", "its part 'gpu:0' repeats the type"},
      {"/job:a/job:a", "its part 'job:a' repeats the job"},
      {"/task:1/task:2", "its part 'task:2' repeats the number"},
  };
  for (const auto& [text, fault] : kFaults) {
    const auto status = ParseDeviceName(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not a device")) << text;
  }
}

TEST(DeviceName, ShortNameIsTheFormThatUsersType) {
  EXPECT_EQ(ParseDeviceName("/job:a/task:1/device:GPU:2")->ShortName(), "/gpu:2");
  EXPECT_EQ(ParseDeviceName("CPU")->ShortName(), "/cpu:*");
  EXPECT_EQ(ParseDeviceName("/device:*:1")->ShortName(), "/*:1");
}

struct Pair {
  const char* a;
  const char* b;
  const char* result;  // or the fault
};

TEST(MergeDeviceNames, CombinesTheSetParts) {
  const Pair kPairs[] = {
      {"", "", ""},
      {"", "/gpu:0", "/device:GPU:0"},
      {"/gpu:0", "", "/device:GPU:0"},
      {"/job:a", "/task:1", "/job:a/task:1"},
      {"/job:a/task:1", "/job:a/replica:0", "/job:a/replica:0/task:1"},
      {"/gpu:*", "/gpu:1", "/device:GPU:1"},
      {"/device:*:1", "/device:GPU", "/device:GPU:1"},
      {"/job:a/gpu:1", "/job:a/gpu:1", "/job:a/device:GPU:1"},
      {"/job:a/replica:0/task:0", "/cpu:0", "/job:a/replica:0/task:0/device:CPU:0"},
  };
  for (const auto& [a, b, merged] : kPairs) {
    const auto result = MergeDeviceNames(*ParseDeviceName(a), *ParseDeviceName(b), false);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ToString(), merged) << a << " and " << b;
  }
}

TEST(MergeDeviceNames, RefusesNamesThatDisagree) {
  const Pair kPairs[] = {
      {"/job:a", "/job:b", "Cannot merge devices with incompatible jobs: '/job:a' and '/job:b'"},
      {"/replica:0", "/replica:1", "incompatible replicas: '/replica:0' and '/replica:1'"},
      {"/job:a/task:0", "/job:a/task:1", "incompatible tasks: '/job:a/task:0' and '/job:a/task:1'"},
      {"/gpu:0", "/cpu:0", "incompatible types: '/device:GPU:0' and '/device:CPU:0'"},
      {"/gpu:0", "/gpu:1", "incompatible ids: '/device:GPU:0' and '/device:GPU:1'"},
  };
  for (const auto& [a, b, fault] : kPairs) {
    const auto status = MergeDeviceNames(*ParseDeviceName(a), *ParseDeviceName(b), false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  }
}

TEST(MergeDeviceNames, SoftPlacementLeavesDisagreeingPartsOpen) {
  const Pair kPairs[] = {
      {"/job:a/gpu:0", "/cpu:0", "/job:a"},
      {"/job:a/gpu:0", "/gpu:1", "/job:a/device:GPU:*"},
      {"/gpu:0", "/job:a/gpu:0", "/job:a/device:GPU:0"},
  };
  for (const auto& [a, b, merged] : kPairs) {
    const auto result = MergeDeviceNames(*ParseDeviceName(a), *ParseDeviceName(b), true);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ToString(), merged) << a << " and " << b;
  }
  EXPECT_FALSE(MergeDeviceNames(*ParseDeviceName("/job:a"), *ParseDeviceName("/job:b"), true).ok());
}

TEST(OverrideDeviceName, InnerNameTakesPrecedence) {
  const Pair kPairs[] = {
      {"/job:a/task:1", "/gpu:0", "/job:a/task:1/device:GPU:0"},
      {"/job:a/gpu:0", "/job:b", "/job:b/device:GPU:0"},
      {"/gpu:0", "/gpu:1", "/device:GPU:1"},
      {"/gpu:1", "/gpu", "/device:GPU:1"},
      {"/gpu:1", "/cpu", "/device:CPU:*"},
      {"/gpu:1", "", "/device:GPU:1"},
      {"", "/cpu:0", "/device:CPU:0"},
  };
  for (const auto& [base, name, result] : kPairs) {
    EXPECT_EQ(OverrideDeviceName(*ParseDeviceName(base), *ParseDeviceName(name)).ToString(), result)
        << base << " and " << name;
  }
}

TEST(CanonicalDeviceName, TakesOpenPartsFromTheBase) {
  constexpr char kBase[] = "/job:foo/replica:10/task:0/device:CPU:0";
  const Case kNamesInIt[] = {
      {"CPU:0", "/job:foo/replica:10/task:0/device:CPU:0"},
      {"gpu:1", "/job:foo/replica:10/task:0/device:GPU:1"},
      {"/task:10/device:CPU:0", "/job:foo/replica:10/task:10/device:CPU:0"},
      {"/job:bar", "/job:bar/replica:10/task:0/device:CPU:0"},
      {"", "/job:foo/replica:10/task:0/device:CPU:0"},
  };
  for (const auto& [text, canonical] : kNamesInIt) {
    EXPECT_EQ(CanonicalDeviceName(text, kBase).value(), canonical) << text;
  }
  EXPECT_THAT(std::string(CanonicalDeviceName("CPU:0", "/job:foo/task:0").status().message()),
              HasSubstr("should be fully specified"));
  EXPECT_FALSE(CanonicalDeviceName("CPU:x", kBase).ok());
  EXPECT_FALSE(CanonicalDeviceName("CPU:0", "/jub:foo").ok());
}

TEST(Matches, PatternMatchesNamesThatHaveAllItsParts) {
  constexpr char kDevice[] = "/job:a/replica:0/task:2/device:GPU:1";
  for (const char* pattern :
       {"", "/job:a", "/task:2", "/gpu:1", "/gpu:*", "/device:*:1", "/job:a/task:2/gpu:1"}) {
    EXPECT_TRUE(Matches(*ParseDeviceName(pattern), *ParseDeviceName(kDevice))) << pattern;
  }
  for (const char* pattern : {"/job:b", "/task:1", "/replica:1", "/cpu:1", "/gpu:0", "/job:a/task:2/gpu:0"}) {
    EXPECT_FALSE(Matches(*ParseDeviceName(pattern), *ParseDeviceName(kDevice))) << pattern;
  }
  EXPECT_FALSE(Matches(*ParseDeviceName("/gpu:1"), *ParseDeviceName("/gpu")));  // it may be another GPU
}

TEST(Compatible, NamesThatDoNotDisagreeAreCompatible) {
  EXPECT_TRUE(Compatible(*ParseDeviceName("/gpu:1"), *ParseDeviceName("/job:a")));
  EXPECT_TRUE(Compatible(*ParseDeviceName("/gpu:1"), *ParseDeviceName("/gpu")));
  EXPECT_FALSE(Compatible(*ParseDeviceName("/gpu:1"), *ParseDeviceName("/job:a/cpu:1")));
}

}  // namespace
}  // namespace cairn::worker
