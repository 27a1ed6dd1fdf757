// Which of the ways that the *_loops.cc are compiled this processor runs.
#pragma once

#include "kernels/cpu/onednn.h"

// Loops() of the namespace of the best instruction set: CAIRN_BEST_LOOPS(PooledLoops).
#if defined(__x86_64__)
#define CAIRN_BEST_LOOPS(Loops)                                                           \
  (onednn::AvailableInstructionSet() == onednn::InstructionSet::kAvx512 ? avx512::Loops() \
   : onednn::AvailableInstructionSet() == onednn::InstructionSet::kAvx2 ? avx2::Loops()   \
                                                                        : portable::Loops())
#else
#define CAIRN_BEST_LOOPS(Loops) portable::Loops()
#endif
