// Named ranges of work for NVIDIA's profilers (`nsys profile`), with NVTX, in our own domain. They do
// nothing if the toolkit lacks NVTX 3, and cost almost nothing if no profiler is attached. Owned by a device
// and used by its thread.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace cairn::kernels::cuda {

class Ranges {
 public:
  Ranges() : domain_(nvtxDomainCreateA("cairn")) {}
  ~Ranges() { nvtxDomainDestroy(domain_); }
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  // Begins a range. Ranges nest. `name` is copied.
  void Begin(const char* name) {
    nvtxEventAttributes_t range = {};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    nvtxDomainRangePushEx(domain_, &range);
  }
  void End() { nvtxDomainRangePop(domain_); }

 private:
  const nvtxDomainHandle_t domain_;
};

}  // namespace cairn::kernels::cuda

#else

namespace cairn::kernels::cuda {

class Ranges {
 public:
  void Begin(const char* /*name*/) {}
  void End() {}
};

}  // namespace cairn::kernels::cuda

#endif
