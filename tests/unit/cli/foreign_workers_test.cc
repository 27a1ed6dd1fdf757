// The workers of `cairn run`: how a program is found, and the environment that it gets.
#include "cli/launcher/foreign_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cairn::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

class ResolveProgramTest : public testing::Test {
 protected:
  ResolveProgramTest() : dir_(testing::TempDir() + "cairn_program_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    std::filesystem::create_directory(dir_ + "/bin");
  }
  ~ResolveProgramTest() override { std::filesystem::remove_all(dir_); }

  std::string Put(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::vector<std::string> Resolved(const std::vector<std::string>& program) {
    const auto command = ResolveProgram(program, "/nowhere:" + dir_ + "/bin");
    EXPECT_TRUE(command.ok()) << command.status();
    return command.value_or(std::vector<std::string>());
  }
  absl::Status Refused(const std::string& program) {
    return ResolveProgram({program}, dir_ + "/bin").status();
  }

  std::string dir_;
};

TEST_F(ResolveProgramTest, APythonFileIsRunWithThePythonOfPath) {
  const std::string script = Put("train.py", "print()", 0644);
  const std::string python = Put("bin/python", "", 0755);
  EXPECT_THAT(Resolved({script, "-x", "1"}), ElementsAre(python, script, "-x", "1"));
  const std::string python3 = Put("bin/python3", "", 0755);
  EXPECT_THAT(Resolved({script}), ElementsAre(python3, script));
}

TEST_F(ResolveProgramTest, AnExecutablePythonFileChoosesItsInterpreter) {
  Put("bin/python3", "", 0755);
  const std::string script = Put("train.py", "#!/opt/python\n", 0755);
  EXPECT_THAT(Resolved({script}), ElementsAre(script));
  const std::string without = Put("executable.py", "print()", 0755);  // as on file systems without modes
  EXPECT_THAT(Resolved({without}), ElementsAre(dir_ + "/bin/python3", without));
}

TEST_F(ResolveProgramTest, ANameIsLookedUpOnPath) {
  const std::string program = Put("bin/mine", "", 0755);
  EXPECT_THAT(Resolved({"mine", "a"}), ElementsAre(program, "a"));
}

TEST_F(ResolveProgramTest, FaultsNameTheProgram) {
  EXPECT_EQ(Refused("mine").message(), "mine: no such program on PATH");
  EXPECT_EQ(Refused("mine.py").message(), "mine.py: no such file or directory");
  EXPECT_EQ(Refused(dir_ + "/mine").message(), dir_ + "/mine: no such file or directory");
  EXPECT_EQ(Refused(dir_).message(), dir_ + ": not a file");
  const std::string text = Put("text", "", 0644), script = Put("train.py", "", 0644);
  EXPECT_EQ(Refused(text).message(), text + ": not an executable file");
  EXPECT_EQ(Refused(script).message(), script + ": there is no python3 on PATH to run it");
}

ForeignWorkersArgs TwoWorkers() {
  return {.command = {"/opt/mine", "-x"},
          .server_ports = {1000, 1001},
          .worker_ports = {2000, 2001},
          .master_port = 3000,
          .default_threads = 4,
          .restarts = 7,
          .environment = {"HOME=/root", "RANK=9", "TF_CONFIG={}"}};
}

TEST(ForeignWorkers, EveryWorkerLearnsItsPlaceFromItsEnvironment) {
  const auto tasks = PlanForeignWorkers(TwoWorkers());
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[1].child.name, "worker/1");
  EXPECT_EQ(tasks[1].restarts, 7);
  EXPECT_THAT(tasks[1].child.command, ElementsAre("/opt/mine", "-x"));
  EXPECT_THAT(tasks[1].child.environment,
              ElementsAre("HOME=/root", "CAIRN_SERVERS=127.0.0.1:1000,127.0.0.1:1001",
                          "CAIRN_WORKERS=127.0.0.1:2000,127.0.0.1:2001", "CAIRN_REUSE_PORT=1", "RANK=1",
                          "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                          "MASTER_PORT=3000",
                          R"(TF_CONFIG={"cluster": {"ps": ["127.0.0.1:1000", "127.0.0.1:1001"], "worker": )"
                          R"(["127.0.0.1:2000", "127.0.0.1:2001"]}, "task": {"type": "worker", "index": 1}})",
                          "OMP_NUM_THREADS=4", "OMP_WAIT_POLICY=passive", "PYTHONUNBUFFERED=1"));
}

TEST(ForeignWorkers, ThreadsOfTheEnvironmentAreKeptUnlessAFlagGivesTheirNumber) {
  ForeignWorkersArgs args = TwoWorkers();
  args.environment = {"OMP_NUM_THREADS=3", "PYTHONUNBUFFERED=", "OMP_WAIT_POLICY=active"};
  EXPECT_THAT(PlanForeignWorkers(args)[0].child.environment, IsSupersetOf(args.environment));
  args.threads = 2;
  const auto environment = PlanForeignWorkers(args)[0].child.environment;
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(environment, Not(Contains("OMP_NUM_THREADS=3")));
}

}  // namespace
}  // namespace cairn::cli
