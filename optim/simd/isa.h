// The vector instructions that the loops of this folder may use. One binary runs on every x86-64 processor;
// the widest supported set is chosen at run time. Other architectures use what the compiler targets. All sets
// give the same bits.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::optim {

enum class Isa { kBaseline, kAvx2, kAvx512 };

absl::string_view IsaName(Isa isa);
// The sets that this machine supports, narrowest first; never empty.
absl::Span<const Isa> SupportedIsas();
Isa WidestIsa();

}  // namespace cairn::optim
