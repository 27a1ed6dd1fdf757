// Replaces CUDA's header of this name when the sources of kernels/cuda are built for the CPU. It has only the
// parts of the language and of the runtime library that they use. There are a few devices, which use host
// memory. Work is done when the call returns, unless a graph is captured.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "tests/support/cuda_on_cpu/blocks.h"

// --- The language ---

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local  // blocks run one after the other, each on one thread
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline constexpr int warpSize = cairn::cuda_on_cpu::kWarp;

inline void __syncthreads() {
  cairn::cuda_on_cpu::SyncBlock();
}
inline void __syncwarp(unsigned mask = ~0u) {
  cairn::cuda_on_cpu::SyncWarp(mask, 0, 0);
}
inline void __threadfence() {}

namespace cairn::cuda_on_cpu {

template <typename T>
T Shuffle(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = SyncWarp(mask, bits, lane).value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cairn::cuda_on_cpu

// Shuffles within groups of `width` lanes, which are independent of each other.
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  const auto size = static_cast<unsigned>(width), own = cairn::cuda_on_cpu::Lane();
  return cairn::cuda_on_cpu::Shuffle(mask, value, own / size * size + static_cast<unsigned>(lane) % size);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const auto size = static_cast<unsigned>(width), own = cairn::cuda_on_cpu::Lane();
  return cairn::cuda_on_cpu::Shuffle(mask, value, own % size + delta < size ? own + delta : own);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const auto size = static_cast<unsigned>(width), own = cairn::cuda_on_cpu::Lane();
  return cairn::cuda_on_cpu::Shuffle(mask, value, own % size >= delta ? own - delta : own);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  const auto size = static_cast<unsigned>(width), own = cairn::cuda_on_cpu::Lane();
  const unsigned other = own ^ static_cast<unsigned>(lanes);
  return cairn::cuda_on_cpu::Shuffle(mask, value, other / size <= own / size ? other : own);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return cairn::cuda_on_cpu::SyncWarp(mask, predicate != 0 ? 1 : 0, 0).ballot;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0 ? 1 : 0;
}

// One thread runs at a time.
template <typename T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old + value;
  return old;
}
template <typename T>
T atomicMax(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old < value ? value : old;
  return old;
}
template <typename T>
T atomicMin(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value < old ? value : old;
  return old;
}
template <typename T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value;
  return old;
}
template <typename T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *place;
  if (old == expected) *place = value;
  return old;
}

template <typename T>
T __ldg(const T* place) {
  return *place;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
// Macros: glibc declares functions of these names.
#define __expf expf
#define __logf logf
#define __powf powf
#define __sinf sinf
#define __cosf cosf

template <typename T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// --- The runtime library ---

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,  // an event is recorded in another device's stream
  cudaErrorNotReady = 600,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorStreamCaptureUnsupported = 900,  // what would wait, or take memory, in the midst of a capture
  cudaErrorStreamCaptureIsolation = 905,    // a captured stream waits for one that is not
  cudaErrorCapturedEvent = 907,             // ... and the reverse
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
// Returns the last failure of any call, and clears it.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
  int pciDomainID, pciBusID, pciDeviceID;
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
#define CUDART_VERSION 13000
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaDeviceSynchronize();

using cudaStream_t = struct CUstream_st*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);

using cudaEvent_t = struct CUevent_st*;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
inline constexpr unsigned cudaEventRecordDefault = 0;
inline constexpr unsigned cudaEventRecordExternal = 1;
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

using cudaHostFn_t = void (*)(void* data);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

// New memory of the device is filled with NaN.
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
inline constexpr unsigned cudaHostRegisterPortable = 1;
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
// For host memory.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);

// Work enqueued between these two calls is recorded in a graph instead of executed, also that of streams that
// wait for an event of such a stream.
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
// Returns only the number of nodes: `nodes` must be null.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

namespace cairn::cuda_on_cpu {

// Returns cudaSuccess, or the error of a GPU for such a launch, which cudaGetLastError() then returns.
cudaError_t CheckLaunch(dim3 grid, dim3 block, size_t shared_bytes);

// The current device of the thread that created the stream.
int DeviceOf(cudaStream_t stream);
// Work enqueued from now on never completes, as far as events show.
void Stall(cudaStream_t stream);

// Executes the work, or records it in the graph into which the stream is captured.
void Enqueue(cudaStream_t stream, std::function<void()> work);

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...), where call(arguments...) calls the kernel.
template <typename Call, typename... Arguments>
void Launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Call& call,
            const Arguments&... arguments) {
  if (CheckLaunch(grid, block, shared_bytes) != cudaSuccess) return;
  Enqueue(stream, [=] { Run(grid, block, shared_bytes, [&] { call(arguments...); }); });
}

}  // namespace cairn::cuda_on_cpu
