// Processes that copy metrics elsewhere: a script of the test's own stands in for them.
#include "train/trackers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "corpus/temporary_directory.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class TrackerProcesses : public testing::Test {
 protected:
  ~TrackerProcesses() override { base::configure_log({}); }

  // The script writes its arguments beside itself, answers as told, and at the end once more.
  void write_script(const std::string& first_answer, const std::string& last_answer) {
    base::write_file_atomically(directory_ / "track_run.py", R"(
import pathlib, struct, sys
source, sink = open(3, "rb", buffering=0, closefd=False), open(3, "wb", buffering=0, closefd=False)
def tell(answer):
    kind, message = answer[:1].encode(), answer[1:].encode()
    sink.write(kind if kind == b"K" else kind + struct.pack("<Q", len(message)) + message)
folder = pathlib.Path(__file__).parent
(folder / sys.argv[1]).write_text("\n".join(sys.argv[1:]))
tell(")" + first_answer + R"(")
if source.read(1) == b"E":
    (folder / "ended").write_text("")
    tell(")" + last_answer + R"(")
)");
  }
  config::LogConfig log(const std::string& wandb, const std::string& mlflow) const {
    config::LogConfig log;
    log.dir = directory_ / "run";
    log.wandb = wandb;
    log.mlflow = mlflow;
    return log;
  }
  corpus::PythonTools tools() const {
    return {.interpreter = "/usr/bin/python3", .usual = {}, .scripts = directory_.path()};
  }
  std::string file(const std::string& name) const { return base::read_file(directory_ / name); }

  corpus::TemporaryDirectory directory_;
};

TEST_F(TrackerProcesses, EachIsToldTheRunsDirectoryAndItsTargetAndIsWaitedFor) {
  write_script("K", "K");
  Trackers trackers(log("my project", "\u00e9xperiment"), tools());
  EXPECT_EQ(file("wandb"), "wandb\n" + (directory_ / "run").string() + "\nmy project");
  EXPECT_EQ(file("mlflow"), "mlflow\n" + (directory_ / "run").string() + "\n\u00e9xperiment");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "ended"));
  trackers.close();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "ended"));
}

TEST_F(TrackerProcesses, WithoutATargetNothingIsStarted) {
  Trackers trackers(log("", ""), tools());  // there is no script either
  trackers.close();
}

TEST_F(TrackerProcesses, ATrackerThatCannotBeginEndsTheRunBeforeItsFirstStep) {
  write_script("Xlog.wandb: ValueError: no project called absent", "K");
  EXPECT_THAT([&] { Trackers(log("absent", ""), tools()); },
              ThrowsMessage<base::InputError>(HasSubstr("no project called absent")));
}

TEST_F(TrackerProcesses, AFaultAtTheEndIsAWarningBecauseTheRunIsDone) {
  write_script("K", "Xlog.wandb: OSError: no route to the server");
  Trackers trackers(log("project", ""), tools());
  base::configure_log({.file = directory_ / "log"});
  trackers.close();
  EXPECT_THAT(file("log"),
              AllOf(HasSubstr("not all metrics are at log.wandb"), HasSubstr("no route to the server")));
}

}  // namespace
}  // namespace sluice::train
