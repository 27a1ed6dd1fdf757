// Where a step's time goes, from timelines: a table for people.
#pragma once

#include <string>
#include <vector>

#include "common/core/trace_file.h"

namespace cairn {

// A line for each kind of slice: how many, their median, and what they come to for each step of the job, also
// as a part of a step's length. Work of several lanes goes on at the same time, so parts need not add up to
// 100 %. Empty traces and such without a step are told as they are. Any thread.
std::string SummaryOf(const std::vector<TaskTrace>& traces);

}  // namespace cairn
