// Between the server of a part and the one that keeps its copy, as ps/replicate.cc does it: items as frames.
#pragma once

#include <memory>

#include "tests/simulation/fleet.h"

namespace cairn::simulation {

// `from`: the process whose server serves the part.
std::unique_ptr<ps::CopyStream> DialCopy(Simulation& simulation, Fleet& fleet, int part, int from,
                                         ps::CopyStreamHandler& handler);

}  // namespace cairn::simulation
