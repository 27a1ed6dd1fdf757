// `cairn train` itself, with scripts in place of cairn-ps and cairn-worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "data/array/synthetic_mnist.h"
#include "tests/support/source_dir.h"

namespace cairn::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// A copy of `cairn` with scripts as cairn-ps and cairn-worker, which write their arguments to files next to
// them.
constexpr char kServer[] = R"(#!/bin/sh
dir=$(dirname "$0")
echo "$*" > "$dir/ps.call"
i=0; while [ ! -e "$dir/finished" ] && [ $i -lt 1000 ]; do sleep 0.02; i=$((i+1)); done
)";
constexpr char kWorker[] = R"(#!/bin/sh
dir=$(dirname "$0")
case "$*" in
*--task_index=0*) echo "$* OMP=$OMP_WAIT_POLICY" > "$dir/worker0.call"; echo 'Epoch 1/1'; touch "$dir/finished" ;;
*) echo "$*" > "$dir/worker1.call" ;;
esac
)";

class TrainCommand : public testing::Test {
 protected:
  TrainCommand() : dir_(testing::TempDir() + "cairn_train_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    std::filesystem::copy_file(CAIRN_PROGRAM, dir_ + "/cairn");
    EXPECT_TRUE(data::WriteSyntheticMnist(dir_, 20, 10, /*seed=*/0).ok());  // --data_dir is dir_ too
    model_ = InSource("deploy/examples/mnist_mlp.json");
  }
  ~TrainCommand() override { std::filesystem::remove_all(dir_); }

  void Install(const std::string& program, const std::string& script) {
    std::ofstream(absl::StrCat(dir_, "/", program)) << script;
    chmod(absl::StrCat(dir_, "/", program).c_str(), 0755);
  }
  int Run(const std::string& arguments) {
    const std::string command =
        absl::StrCat("timeout -k 1 60 ", dir_, "/cairn train ", arguments, " 2>", dir_, "/err");
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    out_.clear();
    while (const size_t count = fread(buffer, 1, sizeof buffer, pipe)) out_.append(buffer, count);
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string File(const std::string& name) {
    return ReadFile(absl::StrCat(dir_, "/", name)).value_or(absl::StrCat("no ", name));
  }

  std::string dir_;
  std::string model_;
  std::string out_;
};

TEST_F(TrainCommand, PassesItsFlagsToEveryWorkerAndTheSummaryToTheChief) {
  Install("cairn-ps", kServer);
  Install("cairn-worker", kWorker);
  EXPECT_EQ(Run(absl::StrCat(model_, " --data-dir ", dir_, " --ps 1 --workers 2 --sync_replicas --epochs 3 ",
                             "--threads 5 --summary ", dir_, "/out.json")),
            0)
      << File("err");
  EXPECT_EQ(out_, "Epoch 1/1\n");
  EXPECT_EQ(File("err"), "");

  const std::string flags =
      absl::StrCat("--model=", model_, " --data_dir=", dir_, " --epochs=3 --sync_replicas=true --threads=5");
  EXPECT_THAT(File("worker0.call"), HasSubstr(flags));
  EXPECT_THAT(File("worker0.call"), EndsWith(absl::StrCat("--summary=", dir_, "/out.json OMP=passive\n")));
  EXPECT_THAT(File("worker1.call"), EndsWith(absl::StrCat(flags, "\n")));
  EXPECT_THAT(File("worker1.call"), HasSubstr("--log_level=warning"));
  EXPECT_THAT(File("ps.call"), HasSubstr("--job_name=ps --task_index=0 --ps_hosts=127.0.0.1:"));
  EXPECT_THAT(File("ps.call"), EndsWith("--reuse_port\n"));
}

TEST_F(TrainCommand, TheExitCodeIsThatOfTheFailedWorker) {
  Install("cairn-ps", kServer);
  Install("cairn-worker", "#!/bin/sh\necho 'loss is NaN' >&2\nexit 3\n");
  EXPECT_EQ(Run(absl::StrCat(model_, " --data_dir ", dir_)), 3);
  EXPECT_THAT(File("err"), HasSubstr("[worker/0] loss is NaN\n"
                                     "cairn train: worker/0 ended with exit code 3; stopping the rest\n"));
}

TEST_F(TrainCommand, FaultsAreDetectedBeforeAnyTaskStarts) {
  Install("cairn-ps", kServer);
  Install("cairn-worker", kWorker);
  std::ofstream(dir_ + "/bad.json") << "{\"class_name\": \"Sequential\", \"config\": {\"layers\": [";
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "which model?"},
      {model_, "--data_dir is missing"},
      {absl::StrCat(model_, " --data_dir ", dir_, "/nowhere"), "/nowhere: no such file or directory"},
      {absl::StrCat(dir_, "/bad.json --data_dir ", dir_), "bad.json:1:"},
      {absl::StrCat(model_, " --data_dir /proc/self"), "/proc/self: no data set found"},
      {absl::StrCat(model_, " --data_dir ", dir_, " --loss hinge"), "loss 'hinge' is not supported"},
      {absl::StrCat(model_, " --data_dir ", dir_, " --workers 0"), "--workers: '0' is not a whole number"},
      {absl::StrCat(model_, " --data_dir ", dir_, " --epochs=-1"), "--epochs: '-1' is not a whole number"},
      {absl::StrCat(model_, " --data_dir ", dir_, " --sync_replicas --replicas_to_aggregate 2"),
       "2 is more than 1 worker"},
  };
  for (const auto& [arguments, fault] : faults) {
    EXPECT_EQ(Run(arguments), 2) << arguments;
    EXPECT_THAT(File("err"), HasSubstr(fault));
    EXPECT_EQ(File("err").find('\n'), File("err").size() - 1) << File("err");
    EXPECT_EQ(File("ps.call"), "no ps.call");
  }
}

TEST_F(TrainCommand, MissingProgramsAreNamed) {
  EXPECT_EQ(Run(absl::StrCat(model_, " --data_dir ", dir_)), 1);
  EXPECT_EQ(File("err"), absl::StrCat("cairn train: cannot start ", std::filesystem::canonical(dir_).string(),
                                      "/cairn-ps: No such file or directory\n"));
}

}  // namespace
}  // namespace cairn::cli
