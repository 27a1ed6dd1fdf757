// `cairn predict --generate N`: prints the tokens by which a language model continues a prompt.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/export/weights.h"
#include "worker/inputs/generation.h"
#include "worker/options/options.h"

namespace cairn::cli {

struct GenerationFlags {
  int64_t count = 0;                // --generate; 0: not given
  std::string prompt{};             // --prompt; empty: the prompt is in a file
  std::string vocabulary{};         // --vocabulary; empty: that of the trained model
  std::string source_vocabulary{};  // --source_vocabulary; empty: not given
  int64_t start = -1;               // --start_id; -1: not given
  int64_t end = -1;                 // --end_id; -1: not given
  std::string decoder_input{};
  int64_t drop = 1;
  int64_t beams = 1;
  worker::SamplingOptions sampling{};
};

// Prints prompts and their continuations: as text if there is a vocabulary, else as ids, each on one line. The prompt
// is flags.prompt, or the contents of `file`: ids in a .npy file, or text. With flags.start or flags.source_vocabulary,
// the prompt or the file has what the encoder reads, in a text with one source in each line, and continuations of the
// start token are printed.
absl::Status PrintGenerated(const worker::TrainedModel& trained, const worker::TrainOptions& options,
                            const GenerationFlags& flags, const std::string& file, int threads);

}  // namespace cairn::cli
