#include "kernels/cuda/runtime/context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/libraries.h"

namespace cairn::kernels::cuda {

class Context::SlabSource final : public MemoryPool::Source {
 public:
  void* Take(int64_t bytes) override {
    void* slab = nullptr;
    if (cudaMalloc(&slab, static_cast<size_t>(bytes)) == cudaSuccess) return slab;
    static_cast<void>(cudaGetLastError());  // otherwise the next launch would report it
    return nullptr;
  }
  void Return(void* slab) override { static_cast<void>(cudaFree(slab)); }
};

namespace {

class PooledMemory final : public DeviceMemory {
 public:
  PooledMemory(MemoryPool& pool, void* block, int64_t num_floats)
      : pool_(pool), block_(block), num_floats_(num_floats) {}
  ~PooledMemory() override { pool_.Free(block_); }
  float* data() override { return static_cast<float*>(block_); }
  int64_t num_floats() const override { return num_floats_; }

 private:
  MemoryPool& pool_;
  void* const block_;
  const int64_t num_floats_;
};

class RegisteredMemory final : public PinnedMemory {
 public:
  explicit RegisteredMemory(void* host) : host_(host) {}
  ~RegisteredMemory() override { static_cast<void>(cudaHostUnregister(host_)); }

 private:
  void* const host_;
};

}  // namespace

// An event in the stream of copies to the host.
class Context::CudaMarker final : public Marker {
 public:
  CudaMarker(Context& context, Event event) : context_(context), event_(std::move(event)) {}
  absl::Status Set() override {
    CAIRN_RETURN_IF_ERROR(context_.FollowCompute());
    // Within a recording, an event is an edge of the graph by default. This one is external, so that the host
    // can wait for it.
    const unsigned flags = context_.recording_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    CAIRN_CUDA(cudaEventRecordWithFlags(event_.get(), context_.down_.get(), flags));
    return absl::OkStatus();
  }
  absl::Status Wait() override {
    CAIRN_CUDA(cudaEventSynchronize(event_.get()));
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const Event event_;
};

class Context::CudaRecording final : public Recording {
 public:
  CudaRecording(Context& context, GraphExec graph, std::vector<Delivery*> deliveries)
      : context_(context), graph_(std::move(graph)), deliveries_(std::move(deliveries)) {}
  absl::Status Run() override {
    CAIRN_CUDA(cudaGraphLaunch(graph_.get(), context_.stream()));
    context_.expected_.insert(context_.expected_.end(), deliveries_.begin(), deliveries_.end());
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const GraphExec graph_;
  const std::vector<Delivery*> deliveries_;
};

Context::Context(const CudaOptions& options)
    : options_(options), name_(absl::StrCat("/gpu:", options.index)) {}

Context::~Context() {
  static_cast<void>(cudaDeviceSynchronize());  // nothing may use memory that is about to be freed
}

absl::StatusOr<std::unique_ptr<Context>> Context::Create(const CudaOptions& options) {
  std::unique_ptr<Context> context(new Context(options));
  CAIRN_RETURN_IF_ERROR(context->Open());
  return context;
}

absl::Status Context::Open() {
  CAIRN_CUDA(cudaSetDevice(options_.index));
  CAIRN_CUDA(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, options_.index));
  size_t free_bytes = 0, total_bytes = 0;
  CAIRN_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  for (Stream* stream : {&stream_, &up_, &down_}) {
    CAIRN_ASSIGN_OR_RETURN(*stream, MakeStream());
  }
  for (Event* event : {&computed_, &uploaded_, &downloaded_}) {
    CAIRN_ASSIGN_OR_RETURN(*event, MakeEvent());
  }
  const auto limit = static_cast<int64_t>(static_cast<double>(total_bytes) * options_.memory_fraction);
  slabs_ = std::make_unique<SlabSource>();
  pool_ = std::make_unique<MemoryPool>(
      *slabs_, MemoryPool::Options{.device = name_, .limit_bytes = limit, .growth = options_.allow_growth});
  CAIRN_ASSIGN_OR_RETURN(libraries_, Libraries::Create(stream_.get()));
  return absl::OkStatus();
}

ElementType Context::compute_type() const {
  switch (options_.precision) {
    case Precision::kBFloat16:
      return ElementType::kBFloat16;
    case Precision::kFloat16:
      return ElementType::kFloat16;
    case Precision::kFloat32:
    case Precision::kTensorFloat32:
      break;
  }
  return ElementType::kFloat32;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> Context::Allocate(int64_t num_floats, absl::string_view what) {
  constexpr int64_t kMaxFloats = int64_t{1} << 60;
  if (num_floats < 0 || num_floats > kMaxFloats) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " on ", name_, ": ", num_floats, " floats cannot be allocated"));
  }
  const int64_t bytes = num_floats * int64_t{sizeof(float)};
  CAIRN_ASSIGN_OR_RETURN(void* block, pool_->Allocate(bytes, what));
  auto memory = std::make_unique<PooledMemory>(*pool_, block, num_floats);
  CAIRN_CUDA(cudaMemsetAsync(block, 0, static_cast<size_t>(bytes), stream_.get()));
  return memory;
}

absl::Status Context::ReserveScratch(int64_t bytes) {
  if (bytes <= scratch_bytes()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(auto larger, Allocate((bytes + 3) / 4, "scratch"));
  scratch_.push_back(std::move(larger));
  return absl::OkStatus();
}

absl::StatusOr<const Context::RandomSeed*> Context::Seed() {
  if (seed_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(seed_, Allocate(sizeof(RandomSeed) / sizeof(float), "seed"));
    CAIRN_RETURN_IF_ERROR(UploadSeed());
  }
  return reinterpret_cast<const RandomSeed*>(seed_->data());
}

absl::Status Context::SeedRandom(const RandomSeed& seed) {
  last_seed_ = seed;
  return seed_ == nullptr ? absl::OkStatus() : UploadSeed();
}

absl::Status Context::UploadSeed() {
  // A copy of so few bytes from pageable memory reads its source before the call returns, and is made in the
  // order of the stream.
  CAIRN_CUDA(
      cudaMemcpyAsync(seed_->data(), &last_seed_, sizeof(last_seed_), cudaMemcpyHostToDevice, stream_.get()));
  return absl::OkStatus();
}

absl::Status Context::CopyToDevice(const void* host, void* device, int64_t bytes) {
  CAIRN_CUDA(cudaEventRecord(computed_.get(), stream_.get()));
  CAIRN_CUDA(cudaStreamWaitEvent(up_.get(), computed_.get(), 0));
  CAIRN_CUDA(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, up_.get()));
  CAIRN_CUDA(cudaEventRecord(uploaded_.get(), up_.get()));
  CAIRN_CUDA(cudaStreamWaitEvent(stream_.get(), uploaded_.get(), 0));
  return absl::OkStatus();
}

absl::Status Context::FollowCompute() {
  CAIRN_CUDA(cudaEventRecord(computed_.get(), stream_.get()));
  CAIRN_CUDA(cudaStreamWaitEvent(down_.get(), computed_.get(), 0));
  down_follows_ = true;
  return absl::OkStatus();
}

absl::Status Context::CopyToHost(const void* device, void* host, int64_t bytes) {
  CAIRN_RETURN_IF_ERROR(FollowCompute());
  CAIRN_CUDA(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, down_.get()));
  return absl::OkStatus();
}

absl::Status Context::CopyOnDevice(const void* from, void* to, int64_t bytes) {
  CAIRN_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_.get()));
  return absl::OkStatus();
}

absl::Status Context::JoinDownloads() {
  CAIRN_CUDA(cudaEventRecord(downloaded_.get(), down_.get()));
  CAIRN_CUDA(cudaStreamWaitEvent(stream_.get(), downloaded_.get(), 0));
  down_follows_ = false;
  return absl::OkStatus();
}

absl::Status Context::Synchronize() {
  if (down_follows_) CAIRN_RETURN_IF_ERROR(JoinDownloads());
  CAIRN_CUDA(cudaStreamSynchronize(stream_.get()));
  absl::Status first;
  for (Delivery* delivery : expected_) {
    const absl::Status status = delivery->Deliver();
    if (first.ok()) first = status;
  }
  expected_.clear();
  return first;
}

absl::StatusOr<std::unique_ptr<PinnedMemory>> Context::Pin(const void* host, int64_t bytes) {
  void* const memory = const_cast<void*>(host);  // only the signature requires the cast
  CAIRN_CUDA(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterPortable));
  return std::make_unique<RegisteredMemory>(memory);
}

absl::StatusOr<std::unique_ptr<Marker>> Context::MakeMarker() {
  CAIRN_ASSIGN_OR_RETURN(Event event, MakeEvent());
  return std::make_unique<CudaMarker>(*this, std::move(event));
}

absl::StatusOr<std::unique_ptr<Recording>> Context::Record(absl::FunctionRef<absl::Status()> work) {
  CAIRN_RETURN_IF_ERROR(Synchronize());
  CAIRN_CUDA(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  recording_ = true;
  absl::Status status = work();
  if (status.ok() && down_follows_) status = JoinDownloads();
  recording_ = false;
  down_follows_ = false;
  Graph graph;
  const cudaError_t ended = cudaStreamEndCapture(stream_.get(), graph.out());
  std::vector<Delivery*> deliveries = std::exchange(expected_, {});
  CAIRN_RETURN_IF_ERROR(status);
  CAIRN_RETURN_IF_ERROR(ToStatus(ended, "cudaStreamEndCapture"));
  GraphExec executable;
  CAIRN_CUDA(cudaGraphInstantiate(executable.out(), graph.get(), 0));
  CAIRN_CUDA(cudaGraphUpload(executable.get(), stream_.get()));
  return std::make_unique<CudaRecording>(*this, std::move(executable), std::move(deliveries));
}

}  // namespace cairn::kernels::cuda
