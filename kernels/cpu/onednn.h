// All uses of oneDNN, version 2 or 3; only onednn.cc depends on their differences. Exceptions of the library do not
// leave these functions.
//
// A factory tries the given memory formats in order, and takes the first whose implementation is not
// reference code ("ref..."), which is hundreds of times slower. If there is only reference code, it takes the
// first that works.
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
#include "common/memory/aligned_buffer.h"
#include "kernels/device.h"

namespace cairn::kernels::onednn {

using Dims = dnnl::memory::dims;
using Format = dnnl::memory::format_tag;
using MemoryDesc = dnnl::memory::desc;

std::string Version();  // "2.6.3"

// The best instruction set that oneDNN uses on this processor. Our own loops use the same one, so
// ONEDNN_MAX_CPU_ISA limits both.
enum class InstructionSet { kBasic, kAvx2, kAvx512 };
InstructionSet AvailableInstructionSet();
// Whether the processor multiplies bfloat16 (AVX-512 BF16 or AMX), which oneDNN otherwise emulates slowly.
bool MultipliesBFloat16();

// The resources that the ops of one device share. Created with the device; used by one thread at a time.
class Context {
 public:
  // `operands`: kFloat32, or kBFloat16 where MultipliesBFloat16().
  Context(int threads, ElementType operands);

  // Sets the calling thread's number of OpenMP threads to this device's. oneDNN plans a primitive for the
  // number that it sees when the primitive is made, so both makers and runners call this first.
  void UseThreads() const;

  // Working memory that any one primitive may use while it runs. Grows while ops are made, never while they
  // run.
  void ReserveScratch(size_t bytes);
  float* scratch() { return scratch_.data(); }
  // Memory for a copy that is used only while an op runs. It also grows only while ops are made.
  void ReserveStaging(int64_t floats);
  float* staging() { return staging_.data(); }

  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }
  int threads() const { return threads_; }
  // The type that linear maps round the operands of their products to; activations stay float32.
  ElementType operands() const { return operands_; }

  // The inputs of the random number generator.
  void set_seed(uint64_t seed, int64_t first_example) {
    seed_ = seed;
    first_example_ = first_example;
  }
  uint64_t seed() const { return seed_; }
  int64_t first_example() const { return first_example_; }

 private:
  const int threads_;
  const ElementType operands_;
  uint64_t seed_ = 0;
  int64_t first_example_ = 0;
  const dnnl::engine engine_;
  const dnnl::stream stream_;
  AlignedBuffer scratch_, staging_;
};

// A primitive with its arguments bound to memory objects, so that running it allocates nothing here.
class Primitive {
 public:
  struct Argument {
    int index;        // DNNL_ARG_*
    MemoryDesc desc;  // empty: the primitive has no such argument, and its pointer is ignored
  };
  // `desc`: any primitive descriptor. The primitive uses the context's scratch memory, so `context` must
  // outlive the primitive.
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
  std::vector<dnnl_exec_arg_t> bound_;  // memories_ as the C functions take them
};

// Converts data between the format of its owner and the format that a primitive needs. If the formats are
// equal nothing is copied.
class Staging {
 public:
  enum class Direction { kIn, kOut };  // into the primitive, out of it
  // kShared: in the context's memory, until the next such copy. kOwn: until this one is made again.
  enum class Memory { kShared, kOwn };
  static absl::StatusOr<Staging> Create(Context& context, Direction direction, Memory memory,
                                        const MemoryDesc& owner, const MemoryDesc& primitive);

  // kIn: copies `owner` if necessary, and returns the data to pass to the primitive.
  absl::StatusOr<const float*> Load(const float* owner);
  // kOut: the primitive must write to Target(); Store() then copies the result to the owner if necessary. kIn: what
  // Load() has returned.
  float* Target(float* owner) { return copy_.has_value() ? buffer() : owner; }
  absl::Status Store(float* owner);

  bool copies() const { return copy_.has_value(); }

 private:
  explicit Staging(Context& context) : context_(&context) {}
  float* buffer() { return buffer_.size() > 0 ? buffer_.data() : context_->staging(); }

  Context* context_;
  std::optional<Primitive> copy_;
  AlignedBuffer buffer_;  // in the primitive's format; empty if nothing is copied, or in the context's memory
};

// oneDNN's descriptor of an activation [n, h, w, c] or [n, c].
MemoryDesc ActivationDesc(const TensorDesc& desc);
// The Layout that equals `desc`, for an image of this logical shape; nullopt if no Layout does.
std::optional<Layout> LayoutOf(const MemoryDesc& desc, const Shape& shape);
// A descriptor of data with these extents in this format. Format::any lets the primitive choose.
MemoryDesc Describe(const Dims& dims, Format format, ElementType type = ElementType::kFloat32);
// Whether a primitive of this descriptor would run reference code.
bool IsReference(const dnnl::primitive_desc_base& desc);
// The number of floats that `desc` occupies, padding included, rounded up.
int64_t NumFloats(const MemoryDesc& desc);

// The operands of the products of a pass have the type `operands`; its result is float32. In bfloat16 the sums are
// float32 too.
struct ConvolutionArgs {
  // source {n, c, h, w}; kernel {filters, c, kh, kw} or {groups, filters / groups, c / groups, kh, kw};
  // destination {n, filters, oh, ow}
  Dims source, kernel, destination;
  Dims strides, dilations, pad_before, pad_after;  // a dilation of 0 leaves no gap
  bool use_bias = true;
  ElementType operands = ElementType::kFloat32;
};
absl::StatusOr<dnnl::convolution_forward::primitive_desc> MakeConvolutionForward(const Context& context,
                                                                                 const ConvolutionArgs& args);
absl::StatusOr<dnnl::convolution_backward_data::primitive_desc> MakeConvolutionBackwardData(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward);
absl::StatusOr<dnnl::convolution_backward_weights::primitive_desc> MakeConvolutionBackwardWeights(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward);

// Activations are row-major. A float32 kernel keeps Keras' format [inputs, units] if oneDNN has fast code for it.
struct InnerProductArgs {
  int64_t batch = 0, inputs = 0, units = 0;
  bool use_bias = true;
  Format kernel = Format::io;  // of the caller: [inputs, units], or Format::oi: [units, inputs]
  ElementType operands = ElementType::kFloat32;
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
  // true: mean and variance are inputs. false: forward computes them from the batch and writes them.
  bool given_statistics = false;
};
absl::StatusOr<dnnl::batch_normalization_forward::primitive_desc> MakeBatchNormForward(
    const Context& context, const BatchNormArgs& args);
absl::StatusOr<dnnl::batch_normalization_backward::primitive_desc> MakeBatchNormBackward(
    const Context& context, const BatchNormArgs& args);
// Whether that primitive must be given beta, which it does not read: version 2 insists, version 3 refuses it.
bool BatchNormBackwardTakesShift();

// A row-major matrix that is part of another one: row i begins at `at` + i * stride.
template <typename Element>
struct MatrixPart {
  Element* at;
  int64_t stride;
};
// c [m, n] = the transpose of a [k, m] times b [k, n].
struct TransposedProduct {
  int64_t m = 0, n = 0, k = 0;
  MatrixPart<const float> a, b;
  MatrixPart<float> c;
};
// With `add`, adds to c.
absl::Status Multiply(const Context& context, const TransposedProduct& product, bool add = false);

absl::StatusOr<dnnl::reorder::primitive_desc> MakeReorder(const Context& context, const MemoryDesc& from,
                                                          const MemoryDesc& to);

}  // namespace cairn::kernels::onednn
