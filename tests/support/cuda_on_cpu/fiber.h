// A second stack: Resume() switches to it, Yield() back. A CUDA thread that waits at a barrier keeps its
// fiber. A fiber involves no other system thread, and is used only by the thread that created it.
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

  // Runs the fiber until it yields. Must not be called from within a fiber.
  void Resume();
  // Returns to the caller of Resume(). Called from within the fiber.
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
