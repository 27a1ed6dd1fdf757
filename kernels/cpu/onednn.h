// Everything that Cairn asks of oneDNN, in one place: versions 2 and 3 differ in how descriptors are made,
// and only onednn.cc knows it. No exception of the library leaves these functions.
//
// A factory tries the memory formats it is given in order, and takes the first whose implementation is no
// reference code ("ref..."), which is hundreds of times slower; only if there is none, the first that works
// at all.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/aligned_buffer.h"
#include "kernels/device.h"

namespace cairn::kernels::onednn {

using Dims = dnnl::memory::dims;
using Format = dnnl::memory::format_tag;
using MemoryDesc = dnnl::memory::desc;

std::string Version();  // "2.6.3"

// The best instructions that oneDNN uses here, for our own loops as well: ONEDNN_MAX_CPU_ISA limits both.
enum class InstructionSet { kBasic, kAvx2, kAvx512 };
InstructionSet AvailableInstructionSet();

// What the ops of one device share. Made with the device; used by one thread at a time.
class Context {
 public:
  explicit Context(int threads);

  // Gives the calling thread this device's number of OpenMP threads. oneDNN plans a primitive for the number
  // it sees when the primitive is made, so makers and runners both call this first.
  void UseThreads() const;

  // Working memory that any one running primitive may use. Grows while ops are made, never while they run.
  void ReserveScratch(size_t bytes);
  float* scratch() { return scratch_.data(); }

  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }
  int threads() const { return threads_; }

  // What is drawn at random depends on them.
  void set_seed(uint64_t seed, int64_t first_example) {
    seed_ = seed;
    first_example_ = first_example;
  }
  uint64_t seed() const { return seed_; }
  int64_t first_example() const { return first_example_; }

 private:
  const int threads_;
  uint64_t seed_ = 0;
  int64_t first_example_ = 0;
  const dnnl::engine engine_;
  const dnnl::stream stream_;
  AlignedBuffer scratch_;
};

// A primitive with its arguments bound to memory objects, so that running it allocates nothing here.
class Primitive {
 public:
  struct Argument {
    int index;        // DNNL_ARG_*
    MemoryDesc desc;  // an empty one: the primitive has no such argument, its pointer is ignored
  };
  // `desc`: any primitive descriptor; its scratchpad is the context's. `context` must outlive the primitive.
  static absl::StatusOr<Primitive> Create(Context& context, const dnnl::primitive_desc_base& desc,
                                          std::initializer_list<Argument> arguments);

  // `pointers` in the order of the arguments.
  absl::Status Run(std::initializer_list<const void*> pointers);

  // oneDNN's name of the code that runs: "jit:avx512_core", "ref:any".
  const std::string& implementation() const { return implementation_; }
  bool is_reference() const { return implementation_.rfind("ref", 0) == 0; }

 private:
  Primitive() = default;
  Context* context_ = nullptr;
  dnnl::primitive primitive_;
  std::string implementation_;
  std::vector<dnnl::memory> memories_;  // [argument], then the scratchpad; null for an ignored argument
  std::vector<dnnl_exec_arg_t> bound_;  // [argument], the same
};

// Data that a primitive wants in another format than its owner keeps it in. Where both agree nothing is
// copied.
class Staging {
 public:
  enum class Direction { kIn, kOut };  // into the primitive, out of it
  static absl::StatusOr<Staging> Create(Context& context, Direction direction, const MemoryDesc& owner,
                                        const MemoryDesc& primitive);

  // kIn: what to give the primitive, after copying `owner` where needed.
  absl::StatusOr<const float*> Load(const float* owner);
  // kOut: where the primitive shall write, and then the copy to the owner.
  float* Target(float* owner) { return copy_.has_value() ? buffer_.data() : owner; }
  absl::Status Store(float* owner);

  bool copies() const { return copy_.has_value(); }

 private:
  Staging() = default;
  std::optional<Primitive> copy_;
  AlignedBuffer buffer_;  // in the primitive's format; empty where nothing is copied
};

// An activation [n, h, w, c] or [n, c] as oneDNN describes it.
MemoryDesc ActivationDesc(const TensorDesc& desc);
// The layout of ours that `desc`, of an image of this logical shape, is; nothing when it is none of them.
std::optional<Layout> LayoutOf(const MemoryDesc& desc, const Shape& shape);
// float32 with these extents in this format; Format::any leaves the choice to the primitive.
MemoryDesc Describe(const Dims& dims, Format format);
// Floats of memory behind `desc`, padding included, rounded up.
int64_t NumFloats(const MemoryDesc& desc);

struct ConvolutionArgs {
  // {n, c, h, w}, {filters, c, kh, kw} or {groups, filters / groups, c / groups, kh, kw}, {n, filters, oh,
  // ow}
  Dims source, kernel, destination;
  Dims strides, dilations, pad_before, pad_after;  // a dilation of 0 leaves no gap
  bool use_bias = true;
};
absl::StatusOr<dnnl::convolution_forward::primitive_desc> MakeConvolutionForward(const Context& context,
                                                                                 const ConvolutionArgs& args);
absl::StatusOr<dnnl::convolution_backward_data::primitive_desc> MakeConvolutionBackwardData(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward);
absl::StatusOr<dnnl::convolution_backward_weights::primitive_desc> MakeConvolutionBackwardWeights(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward);

// Row-major activations, the kernel [inputs, units] as Keras keeps it where that has fast code.
struct InnerProductArgs {
  int64_t batch = 0, inputs = 0, units = 0;
  bool use_bias = true;
};
absl::StatusOr<dnnl::inner_product_forward::primitive_desc> MakeInnerProductForward(
    const Context& context, const InnerProductArgs& args);
absl::StatusOr<dnnl::inner_product_backward_data::primitive_desc> MakeInnerProductBackwardData(
    const Context& context, const InnerProductArgs& args,
    const dnnl::inner_product_forward::primitive_desc& forward);
absl::StatusOr<dnnl::inner_product_backward_weights::primitive_desc> MakeInnerProductBackwardWeights(
    const Context& context, const InnerProductArgs& args,
    const dnnl::inner_product_forward::primitive_desc& forward);

struct AveragePoolArgs {
  MemoryDesc source, destination;
  Dims window, strides, pad_before, pad_after;
};
absl::StatusOr<dnnl::pooling_forward::primitive_desc> MakeAveragePoolForward(const Context& context,
                                                                             const AveragePoolArgs& args);
absl::StatusOr<dnnl::pooling_backward::primitive_desc> MakeAveragePoolBackward(
    const Context& context, const AveragePoolArgs& args,
    const dnnl::pooling_forward::primitive_desc& forward);

struct BatchNormArgs {
  MemoryDesc activation;
  float epsilon = 0;
  bool scale = true, center = true;
  bool given_statistics = false;  // in place of the batch's own, which forward writes
};
absl::StatusOr<dnnl::batch_normalization_forward::primitive_desc> MakeBatchNormForward(
    const Context& context, const BatchNormArgs& args);
absl::StatusOr<dnnl::batch_normalization_backward::primitive_desc> MakeBatchNormBackward(
    const Context& context, const BatchNormArgs& args);

absl::StatusOr<dnnl::reorder::primitive_desc> MakeReorder(const Context& context, const MemoryDesc& from,
                                                          const MemoryDesc& to);

}  // namespace cairn::kernels::onednn
