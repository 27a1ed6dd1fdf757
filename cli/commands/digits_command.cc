#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/path_checks.h"
#include "data/array/synthetic_mnist.h"

namespace cairn::cli {
namespace {

// `cairn digits`: writes synthetic digits in MNIST's format, for machines that have neither the original data
// nor a network.
class DigitsCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"DIR DIR", &directory_, "Directory for the four files", {}, kRequired},
                   {"--train N", &num_train_, "Number of training examples", WholeNumberFrom(1)},
                   {"--validation N", &num_validation_, "Number of validation examples", WholeNumberFrom(1)},
                   {"--seed N", &seed_, "Seed of the generator; the same seed generates the same digits",
                    WholeNumberFrom(0)}});
  }

  int Run(const CLI::App&) override {
    if (const absl::Status status = CheckDirectoryWritable(directory_); !status.ok()) {
      return static_cast<int>(UsageError("cairn digits", absl::StrCat("DIR: ", status.message())));
    }
    const absl::Status status = data::WriteSyntheticMnist(directory_, num_train_, num_validation_, seed_);
    if (!status.ok()) {
      std::fprintf(stderr, "cairn digits: %s\n", std::string(status.message()).c_str());
      return static_cast<int>(ExitCode::kFailure);
    }
    std::printf("%s: %s training examples, %s validation examples\n", directory_.c_str(),
                absl::StrCat(num_train_).c_str(), absl::StrCat(num_validation_).c_str());
    return 0;
  }

 private:
  std::string directory_;
  int64_t num_train_ = 60000;
  int64_t num_validation_ = 10000;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeDigitsCommand() {
  return std::make_unique<DigitsCommand>();
}

}  // namespace cairn::cli
