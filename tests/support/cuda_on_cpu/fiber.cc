#include "tests/support/cuda_on_cpu/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// glibc's swapcontext() asks the kernel for the signal mask each time; blocks that exchange values switch
// millions of times.
#if defined(__x86_64__)
extern "C" void cairn_switch_stack(void** from, void* to);
asm(R"(
.text
.type cairn_switch_stack, @function
cairn_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cairn_switch_stack, .-cairn_switch_stack
)");
#endif

namespace cairn::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 128 << 10;

constinit thread_local Fiber* current = nullptr;

// The context to which Yield() returns.
#if defined(__x86_64__)
constinit thread_local void* home = nullptr;
#else
thread_local ucontext_t home;
#endif

// AddressSanitizer must be informed of the next stack around every switch.
#if defined(__SANITIZE_ADDRESS__)
constinit thread_local const void* home_stack = nullptr;
constinit thread_local size_t home_stack_bytes = 0;
void Leave(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void LeaveForHome(void** fake_stack) {
  __sanitizer_start_switch_fiber(fake_stack, home_stack, home_stack_bytes);
}
void ArriveHome(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}
void ArriveAtFiber(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &home_stack, &home_stack_bytes);
}
#else
void Leave(void** /*fake_stack*/, const void* /*stack*/, size_t /*bytes*/) {}
void LeaveForHome(void** /*fake_stack*/) {}
void ArriveHome(void* /*fake_stack*/) {}
void ArriveAtFiber(void* /*fake_stack*/) {}
#endif

}  // namespace

Fiber::Fiber(void (*body)()) : body_(body), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
#if defined(__x86_64__)
  constexpr int kSavedRegisters = 6;
  const auto top = (reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes) & ~uintptr_t{15};
  auto* const words = reinterpret_cast<void**>(top) - 2;  // Enter()'s address, and as if it had been called
  words[0] = reinterpret_cast<void*>(&Enter);
  words[1] = nullptr;
  for (int i = 1; i <= kSavedRegisters; ++i) words[-i] = nullptr;
  stack_pointer_ = words - kSavedRegisters;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Enter, 0);
#endif
}

void Fiber::Enter() {
  ArriveAtFiber(nullptr);
  current->body_();
}

void Fiber::Resume() {
  current = this;
  void* fake_stack = nullptr;
  Leave(&fake_stack, stack_.get(), kStackBytes);
#if defined(__x86_64__)
  cairn_switch_stack(&home, stack_pointer_);
#else
  swapcontext(&home, &context_);
#endif
  ArriveHome(fake_stack);
}

void Fiber::Yield() {
  Fiber* const self = current;
  LeaveForHome(&self->fake_stack_);
#if defined(__x86_64__)
  cairn_switch_stack(&self->stack_pointer_, home);
#else
  swapcontext(&self->context_, &home);
#endif
  ArriveAtFiber(self->fake_stack_);
}

}  // namespace cairn::cuda_on_cpu
