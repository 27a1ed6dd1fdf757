// Chooses at run time between the instruction sets for which the *_loops.cc are compiled.
#pragma once

#include "kernels/cpu/onednn.h"

// Calls Loops() in the namespace of the best instruction set of this processor:
// CAIRN_BEST_LOOPS(PooledLoops).
#if defined(__x86_64__)
#define CAIRN_BEST_LOOPS(Loops)                                                           \
  (onednn::AvailableInstructionSet() == onednn::InstructionSet::kAvx512 ? avx512::Loops() \
   : onednn::AvailableInstructionSet() == onednn::InstructionSet::kAvx2 ? avx2::Loops()   \
                                                                        : portable::Loops())
#else
#define CAIRN_BEST_LOOPS(Loops) portable::Loops()
#endif
