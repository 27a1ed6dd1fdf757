// Pools the rows of embedding tables on a device with its own memory: copies each unique row of a batch once, with the
// places and weights of the bags, and brings back the gradients of unique rows. All copies use pinned memory.
//
//   Forward(bags) ─► the step reads input(i) and writes gradient(i) ─► Backward() ─► Synchronize() ─► row_gradients()
//
// Each batch size has one, which the replica owns. Used by the replica's thread. The memory for the rows grows with the
// batches; the pooled rows stay where they are, so a recorded step may read them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/bag_pool.h"
#include "kernels/device.h"
#include "nn/model.h"
#include "nn/row_bags.h"

namespace cairn::nn {

// Pinned host memory and as much memory of the device. It grows as needed, and loses its contents then.
class StagedMemory {
 public:
  explicit StagedMemory(kernels::Device& device) : device_(device) {}
  // Ensures that there is room for `floats`. Waits for the device if the memory must grow.
  absl::Status Reserve(int64_t floats);
  float* host() { return host_.data(); }
  float* device() { return memory_->data(); }

 private:
  kernels::Device& device_;
  AlignedBuffer host_;
  std::unique_ptr<kernels::PinnedMemory> pinned_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
};

class RowPool {
 public:
  // `bags`: any batch of `examples` examples of `model`. `device` must outlive the object.
  static absl::StatusOr<std::unique_ptr<RowPool>> Create(kernels::Device& device, const Model& model,
                                                         const RowBags& bags, int64_t examples);

  // The lookup that makes this input of the model, or -1.
  int LookupOf(size_t input) const { return lookup_of_input_[input]; }
  // The pooled rows of a lookup, and where the step writes their gradient: device memory, [bags, width].
  const float* input(int lookup) { return pooled_->data() + begins_[static_cast<size_t>(lookup)]; }
  float* gradient(int lookup) { return dpooled_->data() + begins_[static_cast<size_t>(lookup)]; }

  // Copies the rows to the device and pools them. `bags` must stay valid until Backward() has returned.
  // RESOURCE_EXHAUSTED for 2^31 positions or more.
  absl::Status Forward(const RowBags& bags);
  // Requests the gradients of the unique rows, after the work that writes gradient().
  absl::Status Backward();
  // [table] The gradients of its unique rows, [unique rows, width], after the device's next Synchronize(). Valid until
  // the next Backward().
  absl::Span<const absl::Span<const float>> row_gradients() const { return row_gradients_; }

 private:
  explicit RowPool(kernels::Device& device)
      : device_(device), batch_memory_(device), uses_memory_(device), gradients_(device) {}
  absl::Status Init(const Model& model, const RowBags& bags, int64_t examples);
  // The number of positions of the batch.
  int64_t positions() const;
  bool is_weighted() const;
  // The arrays of a kernels::BagBatch, in memory of this object.
  struct Packed {
    float* values = nullptr;
    kernels::TableBegin* tables = nullptr;
    int32_t* splits = nullptr;
    int32_t* unique = nullptr;
    float* weights = nullptr;
  };
  // Writes rows, bags and weights to `packed_`.
  void PackBatch();
  // Writes the uses of the unique rows: see kernels::BagUses. `weights` may be null.
  void PackUses(absl::Span<int32_t> splits, int32_t* bags, float* weights);

  kernels::Device& device_;
  kernels::BagPoolParams params_;
  std::vector<int64_t> begins_;       // [lookup + 1]
  std::vector<int> lookup_of_input_;  // [input of the model] or -1
  int64_t bags_count_ = 0;
  std::unique_ptr<kernels::BagPool> pool_;
  std::unique_ptr<kernels::DeviceMemory> pooled_, dpooled_;
  // The current batch.
  const RowBags* bags_ = nullptr;
  std::vector<kernels::TableBegin> tables_;  // [table + 1]
  StagedMemory batch_memory_, uses_memory_, gradients_;
  Packed packed_;                  // in host memory
  kernels::BagBatch batch_;        // on the device
  std::vector<int32_t> next_use_;  // [unique row] where its next use is written
  std::vector<absl::Span<const float>> row_gradients_;
};

}  // namespace cairn::nn
