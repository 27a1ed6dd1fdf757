// A second stack to run on: Resume() goes there, Yield() comes back. What stands still at a barrier of a CUDA
// block stands on one of these. The threads of the system are not involved; a fiber is used by the one that
// made it.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cairn::cuda_on_cpu {

class Fiber {
 public:
  // `body` starts with the first Resume() and never returns.
  explicit Fiber(void (*body)());
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Until the fiber yields. Not from within a fiber.
  void Resume();
  // Back to where the fiber was resumed. From within it.
  static void Yield();

 private:
  static void Enter();

  void (*const body_)();
  const std::unique_ptr<std::byte[]> stack_;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;  // while it stands still
#else
  ucontext_t context_;
#endif
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace cairn::cuda_on_cpu
