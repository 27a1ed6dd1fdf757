#include "kernels/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Fake(absl::string_view name) {
  return absl::StrCat(CAIRN_FAKES, "/lib", name, ".so");
}

absl::Status OpenFails(const std::vector<std::string>& paths) {
  return OpenCudaBackend(paths).status();
}

TEST(OpenCudaBackend, OpensTheFirstPathThatExists) {
  const std::vector<std::string> paths = {"/nowhere/libcairn_cuda.so", Fake("good"), Fake("other_version")};
  const auto backend = OpenCudaBackend(paths);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->count_devices().value(), 2);
  EXPECT_EQ((*backend)->describe_device(0)->name, "a fake");
  EXPECT_EQ((*backend)->create_device({}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(OpenCudaBackend, AMissingLibraryIsNotFound) {
  const auto status = OpenFails({"/nowhere/libcairn_cuda.so", "libcairn_cuda_that_is_nowhere.so"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "no usable GPU: this installation has no CUDA backend (libcairn_cuda.so was not found)");
}

TEST(OpenCudaBackend, AnotherVersionIsRefusedByName) {
  const auto status = OpenFails({Fake("other_version")});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), absl::StrCat("no usable GPU: ", Fake("other_version"),
                                           " has version 0.0.9, this program has ", CAIRN_VERSION));
}

TEST(OpenCudaBackend, AMissingDependencyIsNamed) {
  const auto status = OpenFails({Fake("lacking")});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("no usable GPU: ", Fake("lacking"), " cannot be opened: ")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cairn_symbol_of_a_library_that_is_missing"));
}

TEST(OpenCudaBackend, AnotherLibraryOfThisNameIsRefused) {
  const auto status = OpenFails({Fake("no_backend")});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not a CUDA backend of this program: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cairn_cuda_backend"));
}

TEST(OpenCudaBackend, AFileThatIsNotALibraryIsRefused) {
  const std::string path = testing::TempDir() + "cairn_no_library.so";
  std::ofstream(path) << "text";
  const auto status = OpenFails({path});
  std::filesystem::remove(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(path, " cannot be opened: ")));
}

// The backend of this build, on a machine without a GPU.
TEST(CudaBackend, OpensAndReportsWhyThereIsNoGpu) {
  const auto count = CountCudaDevices();
  if (!CAIRN_HAVE_CUDA) {
    EXPECT_THAT(std::string(count.status().message()), HasSubstr("has no CUDA backend"));
    GTEST_SKIP() << "this build has no CUDA backend";
  }
  if (count.ok()) GTEST_SKIP() << "this machine has a card: tests/gpu is for it";
  EXPECT_EQ(count.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(count.status().message()),
              testing::AnyOf("no usable GPU: no NVIDIA driver", "no usable GPU: the driver shows no device"));
  EXPECT_EQ(CreateCudaDevice({}).status(), count.status());
  EXPECT_EQ(DescribeCudaDevice(0).status(), count.status());
  EXPECT_EQ(CreateCudaGroup({0, 1}).status(), count.status());
}

TEST(CudaDeviceInfo, IsPrintedInTensorFlowsFormat) {
  const CudaDeviceInfo info = {.name = "NVIDIA H200",
                               .major = 9,
                               .minor = 0,
                               .memory_clock_khz = 3'201'000,
                               .pci_bus_id = "0000:3b:00.0",
                               .total_bytes = int64_t{140} << 30,
                               .free_bytes = int64_t{557} << 28};
  EXPECT_EQ(info.ToString(),
            "name: NVIDIA H200 major: 9 minor: 0 memoryClockRate (GHz): 3.201 pciBusID: 0000:3b:00.0 "
            "totalMemory: 140.00GiB freeMemory: 139.25GiB");
}

TEST(Precision, NamesAndValuesConvertBothWays) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"}) {
    EXPECT_STREQ(NameOf(ParsePrecision(name).value()), name);
  }
  EXPECT_EQ(ParsePrecision("tf32").value(), Precision::kTensorFloat32);
  EXPECT_EQ(ParsePrecision("fp8").status().message(), "'fp8' is not one of fp32, tf32, bf16, fp16");
}

}  // namespace
}  // namespace cairn::kernels
