#include "kernels/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::kernels::onednn {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;

absl::Status StatusOf(dnnl_status_t status, const char* what) {
  switch (status) {
    case dnnl_success:
      return absl::OkStatus();
    case dnnl_out_of_memory:
      return absl::ResourceExhaustedError(absl::StrCat("oneDNN ", what, ": no memory"));
    case dnnl_invalid_arguments:
      return absl::InvalidArgumentError(absl::StrCat("oneDNN ", what, ": invalid arguments"));
    case dnnl_unimplemented:
      return absl::UnimplementedError(absl::StrCat("oneDNN ", what, ": not implemented"));
    default:
      return absl::InternalError(absl::StrCat("oneDNN ", what, ": error ", static_cast<int>(status)));
  }
}

// Returns make(), or the error that it throws. No other function catches exceptions of the library.
template <typename Make>
auto Guarded(const char* what, Make make) -> absl::StatusOr<decltype(make())> {
  try {
    return make();
  } catch (const dnnl::error& error) {
    return StatusOf(error.status, what);
  }
}

// Makes a descriptor from each candidate in turn until one has a fast implementation: see onednn.h.
template <typename Formats, typename Make>
auto FirstFast(const char* what, const Formats& candidates, Make make)
    -> absl::StatusOr<decltype(make(*candidates.begin()))> {
  absl::StatusOr<decltype(make(*candidates.begin()))> best = absl::InternalError("no candidates");
  for (const auto& candidate : candidates) {
    auto made = Guarded(what, [&] { return make(candidate); });
    if (made.ok() && !IsReference(*made)) return made;
    if (!best.ok()) best = std::move(made);
  }
  return best;
}

dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// The descriptor of a primitive from its fields. Version 2 collects them in an object; version 3 takes the engine
// first.
#if DNNL_VERSION_MAJOR >= 3
template <typename Operation, typename... Fields>
typename Operation::primitive_desc MakeForward(const Context& context, const Fields&... fields) {
  return {context.engine(), fields..., Attributes()};
}
template <typename Operation, typename Forward, typename... Fields>
typename Operation::primitive_desc MakeBackward(const Context& context, const Forward& forward,
                                                const Fields&... fields) {
  return {context.engine(), fields..., forward, Attributes()};
}
#else
template <typename Operation, typename... Fields>
typename Operation::primitive_desc MakeForward(const Context& context, const Fields&... fields) {
  return {typename Operation::desc(fields...), Attributes(), context.engine()};
}
template <typename Operation, typename Forward, typename... Fields>
typename Operation::primitive_desc MakeBackward(const Context& context, const Forward& forward,
                                                const Fields&... fields) {
  return {typename Operation::desc(fields...), Attributes(), context.engine(), forward};
}
#endif

MemoryDesc BiasDesc(int64_t units, bool use_bias) {
  return use_bias ? Describe({units}, Format::x) : MemoryDesc();
}

dnnl::normalization_flags Flags(const BatchNormArgs& args) {
  auto flags = dnnl::normalization_flags::none;
  if (args.scale) flags |= dnnl::normalization_flags::use_scale;
  if (args.center) flags |= dnnl::normalization_flags::use_shift;
  if (args.given_statistics) flags |= dnnl::normalization_flags::use_global_stats;
  return flags;
}

// oneDNN numbers instruction sets by bits: one that contains another has its bits, in all versions.
bool ProcessorHas(dnnl_cpu_isa_t instructions) {
  return (dnnl_get_effective_cpu_isa() & instructions) == instructions;
}

// Formats for the activations of a convolution. The first one leaves the choice to the library.
constexpr auto kImageFormats = {Format::any, Format::nChw16c, Format::nChw8c, Format::nhwc, Format::nchw};

// Formats for a dense kernel {units, inputs}: the caller's first, unless the kernel is copied anyway.
std::array<Format, 2> DenseFormats(const InnerProductArgs& args) {
  if (args.operands == ElementType::kFloat32) return {args.kernel, Format::any};
  return {Format::any, args.kernel};
}

}  // namespace

std::string Version() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

InstructionSet AvailableInstructionSet() {
  if (ProcessorHas(dnnl_cpu_isa_avx512_core)) return InstructionSet::kAvx512;
  return ProcessorHas(dnnl_cpu_isa_avx2) ? InstructionSet::kAvx2 : InstructionSet::kBasic;
}

bool MultipliesBFloat16() {
  return ProcessorHas(dnnl_cpu_isa_avx512_core_bf16);
}

Context::Context(int threads, ElementType operands)
    : threads_(threads), operands_(operands), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

void Context::UseThreads() const {
  if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
}

void Context::ReserveScratch(size_t bytes) {
  const auto floats = static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  if (floats > scratch_.size()) scratch_ = AlignedBuffer(floats);
}

void Context::ReserveStaging(int64_t floats) {
  if (floats > staging_.size()) staging_ = AlignedBuffer(floats);
}

absl::StatusOr<Primitive> Primitive::Create(Context& context, const dnnl::primitive_desc_base& desc,
                                            std::initializer_list<Argument> arguments) {
  return Guarded("primitive", [&] {
    Primitive made;
    made.context_ = &context;
    made.primitive_ = dnnl::primitive(desc.get());
    made.implementation_ = desc.impl_info_str();
    const auto bind = [&](int index, const MemoryDesc& memory) {
      made.memories_.push_back(
          memory.get_size() == 0 ? dnnl::memory() : dnnl::memory(memory, context.engine(), DNNL_MEMORY_NONE));
      made.bound_.push_back({index, made.memories_.back().get(true)});
    };
    for (const Argument& argument : arguments) bind(argument.index, argument.desc);
    context.ReserveScratch(desc.scratchpad_desc().get_size());
    bind(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
    return made;
  });
}

absl::Status Primitive::Run(std::initializer_list<const void*> pointers) {
  CAIRN_CHECK(pointers.size() + 1 == bound_.size());
  context_->UseThreads();
  // Calls the C functions: the C++ wrapper would build a map and a vector for every call.
  const auto point = [](const dnnl_exec_arg_t& argument, const void* pointer) {
    if (argument.memory == nullptr) return absl::OkStatus();
    return StatusOf(dnnl_memory_set_data_handle(argument.memory, const_cast<void*>(pointer)),
                    "set_data_handle");
  };
  size_t argument = 0;
  for (const void* pointer : pointers) CAIRN_RETURN_IF_ERROR(point(bound_[argument++], pointer));
  CAIRN_RETURN_IF_ERROR(point(bound_.back(), context_->scratch()));
  return StatusOf(dnnl_primitive_execute(primitive_.get(), context_->stream().get(),
                                         static_cast<int>(bound_.size()), bound_.data()),
                  implementation_.c_str());
}

absl::StatusOr<Staging> Staging::Create(Context& context, Direction direction, Memory memory,
                                        const MemoryDesc& owner, const MemoryDesc& primitive) {
  Staging staging(context);
  if (owner == primitive) return staging;
  const MemoryDesc& from = direction == Direction::kIn ? owner : primitive;
  const MemoryDesc& to = direction == Direction::kIn ? primitive : owner;
  CAIRN_ASSIGN_OR_RETURN(auto desc, MakeReorder(context, from, to));
  CAIRN_ASSIGN_OR_RETURN(staging.copy_,
                         Primitive::Create(context, desc, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}));
  if (memory == Memory::kShared) {
    context.ReserveStaging(NumFloats(primitive));
  } else {
    staging.buffer_ = AlignedBuffer(NumFloats(primitive));
  }
  return staging;
}

absl::StatusOr<const float*> Staging::Load(const float* owner) {
  if (!copy_.has_value()) return owner;
  CAIRN_RETURN_IF_ERROR(copy_->Run({owner, buffer()}));
  return buffer();
}

absl::Status Staging::Store(float* owner) {
  if (!copy_.has_value()) return absl::OkStatus();
  return copy_->Run({buffer(), owner});
}

MemoryDesc ActivationDesc(const TensorDesc& desc) {
  const Shape& shape = desc.shape;
  if (shape.rank() != 4) return Describe(Dims(shape.dims().begin(), shape.dims().end()), Format::nc);
  const Dims dims = {shape[0], shape[3], shape[1], shape[2]};
  switch (desc.layout) {
    case Layout::kBlocked8:
      return Describe(dims, Format::nChw8c);
    case Layout::kBlocked16:
      return Describe(dims, Format::nChw16c);
    // With one channel, both formats describe the same bytes, but only nchw gets oneDNN's fast code for a
    // first convolution.
    case Layout::kRowMajor:
      return Describe(dims, shape[3] == 1 ? Format::nchw : Format::nhwc);
  }
  return {};
}

std::optional<Layout> LayoutOf(const MemoryDesc& desc, const Shape& shape) {
  for (Layout layout : {Layout::kRowMajor, Layout::kBlocked16, Layout::kBlocked8}) {
    if (desc == ActivationDesc({.shape = shape, .layout = layout})) return layout;
  }
  return std::nullopt;
}

MemoryDesc Describe(const Dims& dims, Format format, ElementType type) {
  using Type = dnnl::memory::data_type;
  return {dims, type == ElementType::kBFloat16 ? Type::bf16 : Type::f32, format};
}

bool IsReference(const dnnl::primitive_desc_base& desc) {
  return std::string(desc.impl_info_str()).rfind("ref", 0) == 0;
}

int64_t NumFloats(const MemoryDesc& desc) {
  return static_cast<int64_t>((desc.get_size() + sizeof(float) - 1) / sizeof(float));
}

absl::StatusOr<dnnl::convolution_forward::primitive_desc> MakeConvolutionForward(
    const Context& context, const ConvolutionArgs& args) {
  return FirstFast("convolution forward", kImageFormats, [&](Format format) {
    return MakeForward<dnnl::convolution_forward>(
        context, prop_kind::forward_training, algorithm::convolution_direct,
        Describe(args.source, format, args.operands), Describe(args.kernel, Format::any, args.operands),
        BiasDesc(args.destination[1], args.use_bias), Describe(args.destination, format), args.strides,
        args.dilations, args.pad_before, args.pad_after);
  });
}

absl::StatusOr<dnnl::convolution_backward_data::primitive_desc> MakeConvolutionBackwardData(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return FirstFast("convolution backward data", kImageFormats, [&](Format format) {
    return MakeBackward<dnnl::convolution_backward_data>(
        context, forward, algorithm::convolution_direct, Describe(args.source, format),
        Describe(args.kernel, Format::any, args.operands), Describe(args.destination, format, args.operands),
        args.strides, args.dilations, args.pad_before, args.pad_after);
  });
}

absl::StatusOr<dnnl::convolution_backward_weights::primitive_desc> MakeConvolutionBackwardWeights(
    const Context& context, const ConvolutionArgs& args,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return FirstFast("convolution backward weights", kImageFormats, [&](Format format) {
    return MakeBackward<dnnl::convolution_backward_weights>(
        context, forward, algorithm::convolution_direct, Describe(args.source, format, args.operands),
        Describe(args.kernel, Format::any), BiasDesc(args.destination[1], args.use_bias),
        Describe(args.destination, format, args.operands), args.strides, args.dilations, args.pad_before,
        args.pad_after);
  });
}

absl::StatusOr<dnnl::inner_product_forward::primitive_desc> MakeInnerProductForward(
    const Context& context, const InnerProductArgs& args) {
  return FirstFast("inner product forward", DenseFormats(args), [&](Format format) {
    return MakeForward<dnnl::inner_product_forward>(
        context, prop_kind::forward_training, Describe({args.batch, args.inputs}, Format::nc, args.operands),
        Describe({args.units, args.inputs}, format, args.operands), BiasDesc(args.units, args.use_bias),
        Describe({args.batch, args.units}, Format::nc));
  });
}

absl::StatusOr<dnnl::inner_product_backward_data::primitive_desc> MakeInnerProductBackwardData(
    const Context& context, const InnerProductArgs& args,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return FirstFast("inner product backward data", DenseFormats(args), [&](Format format) {
    return MakeBackward<dnnl::inner_product_backward_data>(
        context, forward, Describe({args.batch, args.inputs}, Format::nc),
        Describe({args.units, args.inputs}, format, args.operands),
        Describe({args.batch, args.units}, Format::nc, args.operands));
  });
}

absl::StatusOr<dnnl::inner_product_backward_weights::primitive_desc> MakeInnerProductBackwardWeights(
    const Context& context, const InnerProductArgs& args,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return FirstFast("inner product backward weights", DenseFormats(args), [&](Format format) {
    return MakeBackward<dnnl::inner_product_backward_weights>(
        context, forward, Describe({args.batch, args.inputs}, Format::nc, args.operands),
        Describe({args.units, args.inputs}, format), BiasDesc(args.units, args.use_bias),
        Describe({args.batch, args.units}, Format::nc, args.operands));
  });
}

absl::StatusOr<dnnl::pooling_forward::primitive_desc> MakeAveragePoolForward(const Context& context,
                                                                             const AveragePoolArgs& args) {
  return Guarded("average pooling forward", [&] {
    return MakeForward<dnnl::pooling_forward>(context, prop_kind::forward_training,
                                              algorithm::pooling_avg_exclude_padding, args.source,
                                              args.destination, args.strides, args.window,
#if DNNL_VERSION_MAJOR >= 3
                                              Dims(args.window.size(), 0),  // no dilation
#endif
                                              args.pad_before, args.pad_after);
  });
}

absl::StatusOr<dnnl::pooling_backward::primitive_desc> MakeAveragePoolBackward(
    const Context& context, const AveragePoolArgs& args,
    const dnnl::pooling_forward::primitive_desc& forward) {
  return Guarded("average pooling backward", [&] {
    return MakeBackward<dnnl::pooling_backward>(context, forward, algorithm::pooling_avg_exclude_padding,
                                                args.source, args.destination, args.strides, args.window,
#if DNNL_VERSION_MAJOR >= 3
                                                Dims(args.window.size(), 0),  // no dilation
#endif
                                                args.pad_before, args.pad_after);
  });
}

absl::StatusOr<dnnl::batch_normalization_forward::primitive_desc> MakeBatchNormForward(
    const Context& context, const BatchNormArgs& args) {
  return Guarded("batch normalization forward", [&] {
    return MakeForward<dnnl::batch_normalization_forward>(context, prop_kind::forward_training,
                                                          args.activation,
#if DNNL_VERSION_MAJOR >= 3
                                                          args.activation,  // the destination
#endif
                                                          args.epsilon, Flags(args));
  });
}

absl::StatusOr<dnnl::batch_normalization_backward::primitive_desc> MakeBatchNormBackward(
    const Context& context, const BatchNormArgs& args) {
  CAIRN_ASSIGN_OR_RETURN(const auto forward, MakeBatchNormForward(context, args));
  return Guarded("batch normalization backward", [&] {
    const bool weights = args.scale || args.center;
    return MakeBackward<dnnl::batch_normalization_backward>(
        context, forward, weights ? prop_kind::backward : prop_kind::backward_data, args.activation,
        args.activation,
#if DNNL_VERSION_MAJOR >= 3
        args.activation,  // the source, after both gradients
#endif
        args.epsilon, Flags(args));
  });
}

bool BatchNormBackwardTakesShift() {
  return DNNL_VERSION_MAJOR < 3;
}

absl::StatusOr<dnnl::reorder::primitive_desc> MakeReorder(const Context& context, const MemoryDesc& from,
                                                          const MemoryDesc& to) {
  return Guarded("reorder", [&] {
    return dnnl::reorder::primitive_desc(context.engine(), from, context.engine(), to, Attributes());
  });
}

absl::Status Multiply(const Context& context, const TransposedProduct& product, bool add) {
  context.UseThreads();
  const auto& [m, n, k, a, b, c] = product;
  return StatusOf(
      dnnl_sgemm('T', 'N', m, n, k, 1.0f, a.at, a.stride, b.at, b.stride, add ? 1.0f : 0.0f, c.at, c.stride),
      "product");
}

}  // namespace cairn::kernels::onednn
