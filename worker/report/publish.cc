#include "worker/report/publish.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/flags.h"
#include "common/system/standard_streams.h"
#include "worker/export/data_record.h"
#include "worker/export/model_files.h"

namespace cairn::worker {
namespace {

absl::Status Export(const Summary& summary, const TrainOptions& options, const Inputs& inputs,
                    absl::Span<const float> parameters, const TableRows* tables) {
  if (options.export_dir.empty()) return absl::OkStatus();
  DataRecord record = inputs.record;
  record.directory = options.export_dir;
  CAIRN_RETURN_IF_ERROR(Annotate(WriteDataRecord(record), "--export_dir"));
  const auto names = WriteModelDirectory(options.export_dir, inputs.model, parameters,
                                         {{"global_step", absl::StrCat(summary.global_step)}}, tables);
  if (!names.ok()) return Annotate(names.status(), "--export_dir");
  LogInfo("the model is in ", options.export_dir, ": ", absl::StrJoin(*names, ", "));
  return absl::OkStatus();
}

}  // namespace

absl::Status Publish(const Summary& summary, const TrainOptions& options, const Inputs& inputs,
                     absl::Span<const float> parameters, const TableRows* tables) {
  absl::Status status = Export(summary, options, inputs, parameters, tables);
  const bool json = LogFormatOf(options.log_format) == LogFormat::kJson;
  std::printf("%s\n", (json ? AsEvent(summary) : OneLine(summary)).c_str());
  status.Update(Annotate(FlushStandardOutput(), "the result"));
  if (options.summary.empty()) return status;
  const absl::Status written = WriteSummary(summary, options.summary);
  if (!written.ok()) status.Update(absl::UnknownError(absl::StrCat("--summary: ", written.message())));
  return status;
}

}  // namespace cairn::worker
