// Summarizes timelines in a table that shows where the time of a step goes.
#pragma once

#include <string>
#include <vector>

#include "common/trace/trace_file.h"

namespace cairn {

// One line per kind of slice: their number, their median duration, and their total duration per step of the
// job, in milliseconds and in percent of the length of a step. Lanes run in parallel, so the percentages need
// not add up to 100. Accepts empty traces and traces without steps. Any thread.
std::string SummaryOf(const std::vector<TaskTrace>& traces);

}  // namespace cairn
