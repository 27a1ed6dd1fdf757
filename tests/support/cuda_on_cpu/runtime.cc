// The runtime library that include/cuda_runtime.h declares.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

// Captures are numbered; 0: none.
struct CUstream_st {
  int device = 0;
  int capture = 0;
  bool stalled = false;
};
struct CUevent_st {
  int device = 0;
  int capture = 0;
  bool stalled = false;
};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

namespace {

// The one capture that a thread can have at a time.
struct Capture {
  int number = 0;  // 0: none
  int last_number = 0;
  std::vector<cudaStream_t> streams;
  CUgraph_st graph;
};
thread_local Capture capture;

constexpr size_t kAlignment = 256;  // of cudaMalloc()
constexpr size_t kMemoryBytes = size_t{4} << 30;
constexpr int kMultiprocessors = 2;
constexpr int kDevices = 4;
// The limit without an opt-in for more.
constexpr size_t kMaxSharedBytes = 48 << 10;

constinit thread_local cudaError_t last_error = cudaSuccess;
constinit thread_local int current_device = 0;

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Pinned host memory: its address, and its size in bytes.
std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;

bool IsDevice(int device) {
  return device >= 0 && device < kDevices;
}

cudaError_t RefuseInCapture() {
  return Report(capture.number == 0 ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CUDA on a CPU");
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = kMemoryBytes;
  properties->major = 9;
  properties->multiProcessorCount = kMultiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
  }
  return Report(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!IsDevice(device)) return Report(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = kMemoryBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return RefuseInCapture();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st{.device = current_device};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return RefuseInCapture();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->stalled) return Report(cudaErrorNotReady);
  return RefuseInCapture();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st{.device = current_device};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (event->device != stream->device) return Report(cudaErrorInvalidResourceHandle);
  event->capture = flags == cudaEventRecordExternal ? 0 : stream->capture;
  event->stalled = stream->stalled;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Report(event->capture == 0 ? cudaSuccess : cudaErrorCapturedEvent);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->stalled) return Report(cudaErrorNotReady);
  return cudaEventSynchronize(event);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  stream->stalled |= event->stalled;
  if (event->capture == stream->capture) return cudaSuccess;
  if (event->capture == 0) return Report(cudaErrorStreamCaptureIsolation);
  if (event->capture != capture.number) return Report(cudaErrorCapturedEvent);
  stream->capture = capture.number;
  capture.streams.push_back(stream);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  cairn::cuda_on_cpu::Enqueue(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (RefuseInCapture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  if (bytes > kMemoryBytes) return Report(cudaErrorMemoryAllocation);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *memory = std::aligned_alloc(kAlignment, rounded);
  if (*memory == nullptr) return Report(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xFF, rounded);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (RefuseInCapture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  *memory = std::malloc(bytes);
  if (*memory == nullptr) return Report(cudaErrorMemoryAllocation);
  return cudaHostRegister(*memory, bytes, 0);
}
cudaError_t cudaFreeHost(void* memory) {
  static_cast<void>(cudaHostUnregister(memory));
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  const std::lock_guard lock(pinned_mutex);
  pinned[static_cast<const char*>(memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(pinned_mutex);
  pinned.erase(static_cast<const char*>(memory));
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard lock(pinned_mutex);
  const auto* const at = static_cast<const char*>(memory);
  const auto after = pinned.upper_bound(at);
  const bool known = after != pinned.begin() && at < std::prev(after)->first + std::prev(after)->second;
  attributes->type = known ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  if (bytes > 0) cairn::cuda_on_cpu::Enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) cairn::cuda_on_cpu::Enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (RefuseInCapture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  capture.number = stream->capture = ++capture.last_number;
  capture.streams = {stream};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (capture.number == 0 || capture.streams.front() != stream) return Report(cudaErrorInvalidValue);
  for (cudaStream_t captured : capture.streams) captured->capture = 0;
  capture.streams.clear();
  capture.number = 0;
  *graph = new CUgraph_st(std::exchange(capture.graph, {}));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return Report(cudaErrorInvalidValue);
  *count = graph->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long /*flags*/) {
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t /*exec*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const std::function<void()>& work : exec->work) cairn::cuda_on_cpu::Enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

namespace cairn::cuda_on_cpu {

cudaError_t CheckLaunch(dim3 grid, dim3 block, size_t shared_bytes) {
  constexpr unsigned kMaxColumns = 0x7fffffff, kMaxRows = 65535, kMaxThreads = 1024, kMaxDepth = 64;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > kMaxColumns || grid.y > kMaxRows ||
      grid.z > kMaxRows || block.x < 1 || block.y < 1 || block.z < 1 || block.x > kMaxThreads ||
      block.y > kMaxThreads || block.z > kMaxDepth || block.x * block.y * block.z > kMaxThreads) {
    return Report(cudaErrorInvalidConfiguration);
  }
  return Report(shared_bytes > kMaxSharedBytes ? cudaErrorInvalidValue : cudaSuccess);
}

int DeviceOf(cudaStream_t stream) {
  return stream->device;
}

void Stall(cudaStream_t stream) {
  stream->stalled = true;
}

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->capture != 0) {
    capture.graph.work.push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace cairn::cuda_on_cpu
