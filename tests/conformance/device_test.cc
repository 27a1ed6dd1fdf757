// The functions of a device other than its ops: copies, markers, recordings.
#include <gmock/gmock.h>

#include <algorithm>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

// gmock's Each() is slow for millions of elements.
bool AllAre(absl::Span<const float> values, float expected) {
  return std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; });
}

class DeviceConformance : public ConformanceTest {};

// Doubles `count` floats of x into y, `times` over, and copies them to the host: everything that a recorded
// step contains.
class Doubling {
 public:
  Doubling(kernels::Device& device, int64_t count, int times)
      : device_(device),
        count_(count),
        times_(times),
        x_(device.Allocate(count, "test").value()),
        y_(device.Allocate(count, "test").value()),
        op_(device.ops().MakeAdd({.shape = {count}}, 2).value()),
        back_(count),
        pinned_(device.Pin(back_.data(), Bytes()).value()),
        marker_(device.MakeMarker().value()) {}

  absl::Status Put(float value) {
    input_.assign(static_cast<size_t>(count_), value);
    return device_.CopyToDevice(input_.data(), x_->data(), Bytes());
  }
  absl::Status Work() {
    const float* const twice[] = {x_->data(), x_->data()};
    for (int i = 0; i < times_; ++i) CAIRN_RETURN_IF_ERROR(op_->Forward(twice, y_->data()));
    CAIRN_RETURN_IF_ERROR(device_.CopyToHost(y_->data(), back_.data(), Bytes()));
    return marker_ == nullptr ? absl::OkStatus() : marker_->Set();
  }
  absl::Status Wait() { return marker_ == nullptr ? device_.Synchronize() : marker_->Wait(); }
  absl::Span<float> back() { return back_.span(); }

 private:
  int64_t Bytes() const { return count_ * int64_t{sizeof(float)}; }

  kernels::Device& device_;
  const int64_t count_;
  const int times_;
  const std::unique_ptr<kernels::DeviceMemory> x_, y_;
  const std::unique_ptr<kernels::NaryOp> op_;
  AlignedBuffer back_;
  std::vector<float> input_;
  const std::unique_ptr<kernels::PinnedMemory> pinned_;
  const std::unique_ptr<kernels::Marker> marker_;
};

TEST_P(DeviceConformance, WorkBeforeAMarkerIsDoneAfterWait) {
  Doubling doubling(device(), 1 << 18, 20);
  for (float value : {1.0f, 2.0f, 3.0f}) {
    ASSERT_TRUE(doubling.Put(value).ok());
    ASSERT_TRUE(doubling.Work().ok());
    ASSERT_TRUE(doubling.Wait().ok());
    EXPECT_TRUE(AllAre(doubling.back(), 2 * value));
    ASSERT_TRUE(device().Synchronize().ok());
  }
}

TEST_P(DeviceConformance, ARecordingUsesTheCurrentContentsOfMemory) {
  Doubling doubling(device(), 1 << 18, 20);
  ASSERT_TRUE(doubling.Put(1).ok());
  ASSERT_TRUE(doubling.Work().ok());
  ASSERT_TRUE(device().Synchronize().ok());
  const auto recording = device().Record([&] { return doubling.Work(); });
  ASSERT_TRUE(recording.ok()) << recording.status();
  if (*recording == nullptr) GTEST_SKIP() << "nothing to gain from it here";
  for (int round = 0; round < 50; ++round) {
    const auto value = static_cast<float>(round);
    std::fill(doubling.back().begin(), doubling.back().end(), -1.0f);
    ASSERT_TRUE(doubling.Put(value).ok());
    ASSERT_TRUE((*recording)->Run().ok());
    ASSERT_TRUE(doubling.Wait().ok());
    ASSERT_TRUE(AllAre(doubling.back(), 2 * value)) << "round " << round;
    ASSERT_TRUE(device().Synchronize().ok());
  }
}

TEST_P(DeviceConformance, MemoryBeyondTheLimitIsRefusedWithItsPurpose) {
  const auto memory = device().Allocate(int64_t{1} << 50, "layer 'conv2d': output");
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.status().message()), testing::HasSubstr("layer 'conv2d': output"));
}

INSTANTIATE_CONFORMANCE(DeviceConformance);

// Makes a run without a GPU report that.
TEST(Gpu, IsTested) {
  const auto devices = kernels::CountCudaDevices();
  if (!devices.ok()) GTEST_SKIP() << devices.status().message();
  EXPECT_GE(*devices, 1);
}

}  // namespace
}  // namespace cairn::conformance
