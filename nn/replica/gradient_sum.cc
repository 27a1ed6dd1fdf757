#include "nn/replica/gradient_sum.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"

namespace cairn::nn {
namespace {

// The number of elements that the devices add up at a time, unless one variable has more. The fixed cost of a
// call should be negligible compared to copying the bytes to the host. Not measured yet.
constexpr int64_t kBucketFloats = 1 << 20;

class HostGradientSum final : public GradientSum {
 public:
  HostGradientSum(const Model& model, size_t devices) : model_(model), arrived_(model.variables().size()) {
    for (size_t device = 0; device < devices; ++device) parts_.emplace_back(model.num_parameters());
  }

  absl::Span<float> part(size_t device) override { return parts_[device].span(); }

  absl::Status Begin(Step step) override {
    step_ = std::move(step);
    for (std::atomic<size_t>& arrived : arrived_) arrived = 0;
    return absl::OkStatus();
  }

  void Add(int variable) override {
    if (arrived_[static_cast<size_t>(variable)].fetch_add(1) + 1 < step_.active()) return;
    const ModelVariable& added = model_.variables()[static_cast<size_t>(variable)];
    const int64_t begin = added.offset, end = begin + added.shape.num_elements();
    float* const sum = step_.gradients.data();
    for (size_t device = 0; device < step_.active(); ++device) {
      const float* const part = parts_[device].data();
      const float share = step_.share(device);
      if (device == 0) {
        for (int64_t i = begin; i < end; ++i) sum[i] = share * part[i];
      } else {
        for (int64_t i = begin; i < end; ++i) sum[i] += share * part[i];
      }
    }
    step_.gradient_queue->Announce(variable);
  }

  absl::Status Tell(int announced, absl::FunctionRef<void(int variable)> on_gradient) override {
    on_gradient(announced);
    return absl::OkStatus();
  }

 private:
  const Model& model_;
  std::vector<AlignedBuffer> parts_;
  std::vector<std::atomic<size_t>> arrived_;  // [variable] number of devices that have added it
  Step step_;
};

class GroupGradientSum final : public GradientSum {
 public:
  GroupGradientSum(const Model& model, absl::Span<DeviceThread* const> threads,
                   std::unique_ptr<kernels::DeviceGroup> group)
      : num_parameters_(model.num_parameters()),
        threads_(threads.begin(), threads.end()),
        parts_(threads.size()),
        group_(std::move(group)),
        bucket_of_(model.variables().size()) {
    // The backward pass goes from the end of the model to its beginning.
    for (size_t index = model.variables().size(); index-- > 0;) {
      const ModelVariable& variable = model.variables()[index];
      if (buckets_.empty() || buckets_.back().end - buckets_.back().begin >= kBucketFloats) {
        buckets_.push_back({.end = variable.offset + variable.shape.num_elements()});
      }
      buckets_.back().begin = variable.offset;
      buckets_.back().variables.push_back(static_cast<int>(index));
      bucket_of_[index] = buckets_.size() - 1;
    }
    missing_ = std::vector<std::atomic<size_t>>(buckets_.size());
  }

  ~GroupGradientSum() override {
    group_ = nullptr;  // destroyed before the memory that the group reads
    for (size_t device = 0; device < threads_.size(); ++device) {
      threads_[device]->Run([&] { parts_[device] = nullptr; });
    }
  }

  absl::Status Allocate() {
    absl::Status status;
    for (size_t device = 0; device < threads_.size() && status.ok(); ++device) {
      threads_[device]->Run([&] {
        auto memory = threads_[device]->device().Allocate(num_parameters_, "gradients");
        status = memory.status();
        if (memory.ok()) parts_[device] = *std::move(memory);
      });
    }
    return status;
  }

  absl::Span<float> part(size_t device) override {
    return {parts_[device]->data(), static_cast<size_t>(num_parameters_)};
  }

  absl::Status Begin(Step step) override {
    step_ = std::move(step);
    shares_.clear();
    for (size_t device = 0; device < threads_.size(); ++device) shares_.push_back(step_.share(device));
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      missing_[bucket] = buckets_[bucket].variables.size() * step_.active();
    }
    return step_.active() == threads_.size() ? absl::OkStatus() : ClearIdle();
  }

  void Add(int variable) override {
    const size_t index = bucket_of_[static_cast<size_t>(variable)];
    if (missing_[index].fetch_sub(1) > 1) return;
    const Bucket& bucket = buckets_[index];
    std::vector<float*> parts;
    for (const auto& part : parts_) parts.push_back(part->data() + bucket.begin);
    group_->Begin(index, {.parts = parts,
                          .weights = shares_,
                          .count = bucket.end - bucket.begin,
                          .host = step_.gradients.data() + bucket.begin});
    step_.gradient_queue->Announce(static_cast<int>(index));
  }

  absl::Status Tell(int announced, absl::FunctionRef<void(int variable)> on_gradient) override {
    const auto bucket = static_cast<size_t>(announced);
    CAIRN_RETURN_IF_ERROR(group_->Await(bucket));
    for (const int variable : buckets_[bucket].variables) on_gradient(variable);
    return absl::OkStatus();
  }

 private:
  // Variables that are adjacent in the flat order and are added up together.
  struct Bucket {
    int64_t begin = 0, end = 0;
    std::vector<int> variables{};
  };

  // Clears the gradients of devices without examples. A group adds up the gradients of all its devices, and
  // weight 0 does not turn NaN into 0.
  absl::Status ClearIdle() {
    std::fill(step_.gradients.begin(), step_.gradients.end(), 0.0f);
    absl::Status status;
    for (size_t device = step_.active(); device < threads_.size() && status.ok(); ++device) {
      threads_[device]->Run([&] {
        kernels::Device& idle = threads_[device]->device();
        status = idle.CopyToDevice(step_.gradients.data(), parts_[device]->data(),
                                   num_parameters_ * int64_t{sizeof(float)});
        if (status.ok()) status = idle.Synchronize();
      });
    }
    return status;
  }

  const int64_t num_parameters_;
  const std::vector<DeviceThread*> threads_;
  std::vector<std::unique_ptr<kernels::DeviceMemory>> parts_;  // [device]; used by the device's thread
  std::unique_ptr<kernels::DeviceGroup> group_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;             // [variable]
  std::vector<std::atomic<size_t>> missing_;  // [bucket] number of calls of Add() that are still to come
  Step step_;
  std::vector<float> shares_;  // [device]
};

}  // namespace

std::unique_ptr<GradientSum> MakeHostGradientSum(const Model& model, size_t devices) {
  return std::make_unique<HostGradientSum>(model, devices);
}

absl::StatusOr<std::unique_ptr<GradientSum>> MakeGroupGradientSum(
    const Model& model, absl::Span<DeviceThread* const> threads,
    std::unique_ptr<kernels::DeviceGroup> group) {
  auto sum = std::make_unique<GroupGradientSum>(model, threads, std::move(group));
  CAIRN_RETURN_IF_ERROR(sum->Allocate());
  return sum;
}

}  // namespace cairn::nn
