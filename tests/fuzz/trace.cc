// Trace files: of one task, and merged.
#include <algorithm>

#include "common/trace/trace_merge.h"
#include "common/trace/trace_summary.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const absl::string_view text = fuzz::TextOf(data, size);
  if (const auto traces = ParseTraces(text, "t.json"); traces.ok()) {
    FUZZ_CHECK(!SummaryOf(*traces).empty());
  } else {
    FUZZ_CHECK(!traces.status().message().empty());
  }
  const auto trace = ParseTrace(text, "t.json");
  if (!trace.ok()) return 0;
  // An accepted trace reads as itself, as far as a double can represent nanoseconds, and can be merged with
  // another one.
  int64_t end = 0;
  for (const TaskTrace::Slice& slice : trace->slices) end = std::max(end, slice.begin + slice.duration);
  for (const TaskTrace::Flow& flow : trace->flows) end = std::max(end, flow.at);
  const std::string own = ToJson(*trace);
  if (end < int64_t{1'000'000'000'000'000}) {
    const auto again = ParseTrace(own, "again");
    FUZZ_CHECK(again.ok());
    FUZZ_CHECK(ToJson(*again) == own);
  }
  TaskTrace server;
  server.task = "ps/0";
  server.clock.boot = "another";
  const auto merged = MergeTraces({server, *trace});
  FUZZ_CHECK(merged.ok() || !merged.status().message().empty());
  return 0;
}
