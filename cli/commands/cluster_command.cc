#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster_files/plan.h"
#include "cli/cluster_files/quote.h"
#include "cli/commands/command.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "worker/options/options.h"

namespace cairn::cli {
namespace {

constexpr char kClusterProgram[] = "cairn cluster generate";

int ClusterFault(absl::string_view fault) {
  return static_cast<int>(UsageError(kClusterProgram, fault));
}

struct Format {
  const char* name;
  absl::StatusOr<std::string> (*write)(const ClusterPlan&);
  bool containers;  // Cairn chooses the paths of data, model and checkpoints
  bool runs;        // the format contains flags of cairn-worker
};

constexpr Format kFormats[] = {{"clusterspec", WriteClusterSpec, false, false},
                               {"shell", WriteShell, false, true},
                               {"compose", WriteCompose, true, true},
                               {"kubernetes", WriteKubernetes, true, true}};

// Flags whose values are fixed by the paths in a container.
constexpr const char* kOfContainers[] = {"--model", "--data_dir", "--train_dir", "--summary"};

// Checks that the name is a DNS label. It must leave room for the suffixes that Kubernetes appends, for
// example NAME-worker-100.
absl::Status CheckName(const std::string& name) {
  const auto plain = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  };
  if (!name.empty() && name.size() <= 40 && absl::ascii_islower(static_cast<unsigned char>(name.front())) &&
      name.back() != '-' && std::all_of(name.begin(), name.end(), plain)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--name: '", name, "' is not a name of at most 40 lower-case letters, digits and '-'"));
}

bool ConsistsOf(absl::string_view text, absl::string_view marks) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [marks](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(marks, c);
  });
}

// Checks image references by the rules of Docker, and names by those of Kubernetes.
absl::Status CheckReferences(const ClusterPlan& plan) {
  const auto refuse = [](const char* flag, const std::string& value, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": '", value, "' is not ", what));
  };
  if (!ConsistsOf(plan.image, "-_./:") || !absl::ascii_isalnum(static_cast<unsigned char>(plan.image[0]))) {
    return refuse("--image", plan.image,
                  "an image name: letters, digits and -_./:, beginning with a letter or digit");
  }
  if (!ConsistsOf(plan.tag, "-_.") || plan.tag.size() > 128 || absl::StrContains("-.", plan.tag[0])) {
    return refuse("--tag", plan.tag,
                  "an image tag: at most 128 letters, digits and -_., not beginning with - or .");
  }
  if (!plan.data_claim.empty() && (!ConsistsOf(plan.data_claim, "-.") || plan.data_claim.size() > 253)) {
    return refuse("--data_claim", plan.data_claim, "a Kubernetes name: letters, digits, - and .");
  }
  return absl::OkStatus();
}

// Checks that all texts are UTF-8: YAML files consist of characters.
absl::Status CheckIsText(const ClusterPlan& plan) {
  for (const std::string& flag : plan.worker_flags) {
    if (!IsUtf8(flag))
      return absl::InvalidArgumentError(absl::StrCat(absl::CHexEscape(flag), ": is not UTF-8"));
  }
  if (!IsUtf8(plan.model))
    return absl::InvalidArgumentError("--model: the file is not text; only the model's JSON can be included");
  return absl::OkStatus();
}

// `cairn cluster generate`: writes files that start a cluster of any size with other tools.
class ClusterCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* generate =
        app.add_subcommand("generate", "Generate a ClusterSpec, or files that start the tasks of a cluster");
    AddFlags(
        *generate,
        {{"--format", &format_,
          "clusterspec: the JSON file of --cluster; shell: a script that uses ssh; compose: Docker Compose; "
          "kubernetes: manifests",
          OneOf({"clusterspec", "shell", "compose", "kubernetes"})},
         {"--ps N", &plan_.servers, "Number of parameter servers; 0 with --mode allreduce",
          WholeNumberFrom(0)},
         {"--workers N", &plan_.workers, "Number of workers, including the chief", WholeNumberFrom(1)},
         {"--port N", &plan_.port,
          "Port of every task; tasks on the same host use consecutive ports from this one",
          WholeNumberFrom(1)},
         {"--hosts A,B,...",
          &plan_.hosts,
          "Hosts that run the tasks, assigned round-robin; only with --format clusterspec or shell",
          {},
          kOneWord},
         {"-o, --output FILE", &output_, "File to write [stdout]"}});
    AddFlags(
        *generate, "Containers",
        {{"--name NAME", &plan_.name, "Name of the cluster in Kubernetes"},
         {"--image IMAGE", &plan_.image, "Prefix of the images: IMAGE-ps, IMAGE-worker and IMAGE-worker-gpu"},
         {"--tag TAG", &plan_.tag, "Tag of the images"},
         {"--gpus N", &plan_.gpus, "Number of GPUs of each worker", WholeNumberFrom(0)},
         {"--model FILE", &model_,
          "Kubernetes: model file to include in a ConfigMap [an existing ConfigMap NAME-model]"},
         {"--data_claim NAME", &plan_.data_claim,
          "Kubernetes: persistent volume claim with the data [synthetic digits are generated]"}});
    AddFlags(*generate, {{"FLAG", &plan_.worker_flags,
                          "Flags of cairn-worker, after --, for example -- --sync_replicas --epochs=5"}});
  }

  int Run(const CLI::App&) override {
    const Format& format = *std::find_if(std::begin(kFormats), std::end(kFormats),
                                         [this](const Format& row) { return format_ == row.name; });
    if (!model_.empty()) {
      auto contents = ReadFile(model_);
      if (!contents.ok()) return ClusterFault(absl::StrCat("--model: ", contents.status().message()));
      plan_.model = *std::move(contents);
    }
    if (const absl::Status status = Check(format); !status.ok()) return ClusterFault(status.message());
    plan_.command = CommandLine(format);
    const auto text = format.write(plan_);
    if (!text.ok()) return ClusterFault(text.status().message());
    if (output_.empty()) {
      std::fputs(text->c_str(), stdout);
      return 0;
    }
    if (const absl::Status status = WriteFileAtomically(output_, *text); !status.ok()) {
      return ClusterFault(absl::StrCat("--output: ", status.message()));
    }
    return 0;
  }

 private:
  absl::Status Check(const Format& format) const {
    const auto refuse = [&](const char* flag) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": does not go with --format ", format.name));
    };
    const bool kubernetes = format_ == "kubernetes";
    if (plan_.port + plan_.servers + plan_.workers > 65536) {
      return absl::InvalidArgumentError(absl::StrCat("--port: ", plan_.port, " leaves too few ports for ",
                                                     Counted(plan_.servers + plan_.workers, "task")));
    }
    if (format.containers && plan_.servers == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--ps: 0: --format ", format.name, " needs servers"));
    }
    if (format.containers && !plan_.hosts.empty()) return refuse("--hosts");
    if (!format.containers && plan_.gpus > 0) return refuse("--gpus");
    if (!kubernetes && !model_.empty()) return refuse("--model");
    if (!kubernetes && !plan_.data_claim.empty()) return refuse("--data_claim");
    if (!format.runs && !plan_.worker_flags.empty()) return refuse(plan_.worker_flags.front().c_str());
    CAIRN_RETURN_IF_ERROR(CheckName(plan_.name));
    CAIRN_RETURN_IF_ERROR(CheckReferences(plan_));
    if (format.containers) CAIRN_RETURN_IF_ERROR(CheckIsText(plan_));
    return CheckWorkerFlags(format);
  }

  // Checks the worker flags with the parser of cairn-worker.
  absl::Status CheckWorkerFlags(const Format& format) const {
    CLI::App app("", "cairn-worker");
    worker::TrainOptions options;
    AddTrainOptions(app, options);
    if (const absl::Status status = ReadFlags(app, plan_.worker_flags); !status.ok()) {
      return Annotate(status, "flags of cairn-worker");
    }
    for (const char* flag : kOfContainers) {
      if (format.containers && !app.get_option(flag)->empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(flag, ": is fixed in containers; mount your files at that path"));
      }
    }
    // The container or the user of the script adds these flags. For the checks any value will do.
    if (options.model.empty()) options.model = "model.json";
    if (options.data.path.empty()) options.data.path = "data";
    if (format.runs && options.all_reduce() != (plan_.servers == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ps: ", plan_.servers, " does not go with --mode ", options.mode));
    }
    return worker::Validate(options);
  }

  // The command that generates the same file, without --output.
  std::string CommandLine(const Format& format) const {
    std::string line = absl::StrCat("cairn cluster generate --format ", format.name);
    const ClusterPlan defaults;
    const auto text = [&](const char* flag, const std::string& value, const std::string& usual) {
      if (value != usual) absl::StrAppend(&line, " ", flag, " ", QuoteForShell(value));
    };
    const auto number = [&](const char* flag, int value, int usual) {
      if (value != usual) absl::StrAppend(&line, " ", flag, " ", value);
    };
    number("--ps", plan_.servers, -1);
    number("--workers", plan_.workers, 0);
    number("--port", plan_.port, defaults.port);
    for (size_t i = 0; i < plan_.hosts.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? " --hosts " : ",", QuoteForShell(plan_.hosts[i]));
    }
    text("--name", plan_.name, defaults.name);
    text("--image", plan_.image, defaults.image);
    text("--tag", plan_.tag, defaults.tag);
    number("--gpus", plan_.gpus, 0);
    text("--model", model_, "");
    text("--data_claim", plan_.data_claim, "");
    if (!plan_.worker_flags.empty()) absl::StrAppend(&line, " --");
    for (const std::string& flag : plan_.worker_flags) absl::StrAppend(&line, " ", QuoteForShell(flag));
    return line;
  }

  std::string format_ = "clusterspec";
  std::string output_, model_;
  ClusterPlan plan_;
};

}  // namespace

std::unique_ptr<Command> MakeClusterCommand() {
  return std::make_unique<ClusterCommand>();
}

}  // namespace cairn::cli
