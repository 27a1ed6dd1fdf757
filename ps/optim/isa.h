// Which vector instructions the loops of this folder may use. One binary runs on every x86-64 (and elsewhere
// with what the compiler targets); the widest of these is chosen when the program runs. All of them give the
// same bits.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::ps {

enum class Isa { kBaseline, kAvx2, kAvx512 };

absl::string_view IsaName(Isa isa);
// What this machine has, narrowest first; never empty.
absl::Span<const Isa> SupportedIsas();
Isa WidestIsa();

}  // namespace cairn::ps
